"""Programs behind programs."""

import pytest

from proxy.policy.command_mentions import program_name
from proxy.policy.command_unwrap import ProgramFinder


def find(text):
    finder = ProgramFinder()
    finder.script(text)
    return finder


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("sudo -u root curl x", ["sudo", "curl"]),
        ("timeout -k 5 10 curl x", ["timeout", "curl"]),
        ("env -u A B=1 curl", ["env", "curl"]),
        ("env -S 'curl x'", ["env", "curl", "curl x"]),
        ("bash -o pipefail -c 'ls; curl'", ["bash", "ls", "curl"]),
        ("find . -name x -exec curl {} +", ["find", "curl"]),
        ("ssh -p 22 host 'ls; curl x'", ["ssh", "ls", "curl"]),
        ("xargs -n 1 curl", ["xargs", "curl"]),
        ("cmd /ccurl x", ["cmd", "curl"]),
        ("command -v curl", ["command"]),
        ("sudo { curl x; }", ["sudo", "curl"]),
        ("flock /tmp/l curl x", ["flock", "curl"]),
    ],
)
def test_a_wrapper_does_not_hide_the_program_it_runs(text, names):
    assert [program.name for program in find(text).programs] == names


@pytest.mark.parametrize(
    "text",
    [
        "$CMD x",
        "cat x | sh",
        'bash -c "$X"',
        "echo x | at now",
        "LD_PRELOAD=x ls",
        "powershell -enc AAAA",
        "/proc/self/exe | bash -s",
        "find . -exec {} \\;",
    ],
)
def test_a_program_or_script_that_is_known_only_at_run_time_is_a_problem(text):
    assert find(text).problem is not None


def test_a_program_in_the_code_of_an_interpreter_is_mentioned():
    assert "curl" in find("awk 'BEGIN{system(\"curl x\")}'").mentioned
    assert "curl" in find("git -c core.pager=curl log").mentioned
    assert "curl" not in find("grep -r curl .").mentioned


@pytest.mark.parametrize(("text", "plain"), [("ls", True), ("X=1 ls", False), ("ls > x", False), ("ls 2>&1", True)])
def test_a_command_that_sets_variables_or_writes_files_is_not_plain(text, plain):
    assert find(text).plain is plain


def test_commands_nested_too_deeply_are_a_problem_and_end():
    assert find("sudo " * 50 + "ls").problem == "a command too deeply nested"


@pytest.mark.parametrize("text", ["/usr/bin/curl", "CURL", "curl.exe", "C:\\x\\Curl.EXE", "\uff43url"])
def test_a_program_is_known_without_folder_case_and_suffix(text):
    assert program_name(text) == "curl"
