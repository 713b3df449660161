"""Programs that others may start."""

import pytest

from proxy.policy.command_guess import Budget
from proxy.policy.command_unwrap import ProgramFinder
from proxy.policy.shell import MAX_SCRIPT


def find(text):
    finder = ProgramFinder()
    finder.script(text)
    return finder


@pytest.mark.parametrize(
    "text", ["nobody-knows curl x", "nobody-knows 'curl x'", "nobody-knows --then=curl", "x -- curl"]
)
def test_a_program_that_no_table_knows_may_run_what_its_words_name(text):
    finder = find(text)
    assert "curl" in {program.name for program in finder.maybe}
    assert "curl" not in {program.name for program in finder.programs}


@pytest.mark.parametrize("text", ["apt install curl", "grep curl x", "nobody-knows 'please use curl'", "git add curl"])
def test_data_is_no_program(text):
    finder = find(text)
    assert "curl" not in {program.name for program in finder.maybe} | finder.mentioned


@pytest.mark.parametrize("text", ["echo 'curl x' > a; sh a", "echo 'curl x' | m4", "cat <(echo 'curl x')"])
def test_text_is_followed_to_what_may_run_it(text):
    finder = find(text)
    assert "curl" in {program.name for program in finder.maybe}


def test_text_that_only_goes_to_a_file_is_data():
    assert find("echo 'curl x' > notes.txt; git add notes.txt").maybe == []


def test_a_subscript_runs_its_substitutions_however_they_are_quoted():
    assert "curl" in {program.name for program in find("[[ 'a[$(curl x)]' -eq 0 ]]").programs}


def test_a_script_that_is_sure_to_run_and_cannot_be_known_is_a_problem():
    assert find("echo '$X y' > a; sh a").problem is not None
    assert find("nobody-knows '$X y'").problem is None


def test_the_text_that_is_read_has_an_end():
    budget = Budget()
    assert budget.take(MAX_SCRIPT)
    assert not budget.take(8 * MAX_SCRIPT)
    assert find("bash -c " * 5000).problem is not None
