"""Names of programs inside the words of other programs."""

import pytest

from proxy.policy.command_mentions import is_script, leading_names, names_in, program_name, scripts_in, starts_programs


@pytest.mark.parametrize("text", ["/usr/bin/curl", "CURL", "curl.exe", "C:\\x\\Curl.EXE", "\uff43url"])
def test_a_program_is_known_without_folder_case_and_suffix(text):
    assert program_name(text) == "curl"


@pytest.mark.parametrize(
    "text", ["curl", "curl x", "--on-exit=curl", "a;curl", "exec:curl", "!curl", "%(curl)", "-Pcurl"]
)
def test_a_name_counts_where_a_command_could_begin(text):
    assert "curl" in leading_names(text)


@pytest.mark.parametrize("text", ["please use curl", "curly", "libcurl", "-url"])
def test_prose_and_parts_of_words_name_no_program(text):
    assert "curl" not in leading_names(text)


def test_code_names_every_program_in_it():
    assert {"os.system", "curl"} <= names_in("os.system('curl x')")
    assert "curl" in names_in("s/x/curl/e")


def test_a_script_has_more_than_a_name():
    assert is_script("curl x")
    assert not is_script("curl")


def test_the_literals_of_code_and_the_commands_of_sed_may_be_scripts():
    assert "curl x" in list(scripts_in("os.system('curl x')"))
    assert "curl x" in list(scripts_in("1e curl x", sed=True))
    assert list(scripts_in("/a/ {print}")) == []


def test_code_that_starts_programs_is_told_from_code_that_does_not():
    assert starts_programs("os.system(x)")
    assert starts_programs("1e x", sed=True)
    assert not starts_programs("print(1)")
    assert not starts_programs("s/e/x/", sed=True)
