"""The tables of programs that run other programs."""

import pytest

from proxy.policy import wrappers
from proxy.policy.command_mentions import program_name
from proxy.policy.command_operator import view_command

SEEN = sorted(wrappers.WRAPPERS)


@pytest.mark.parametrize("name", SEEN)
def test_a_program_behind_each_wrapper_is_seen(name):
    letters, skipped = wrappers.WRAPPERS[name]
    option = [f"-{letters[0]}", "value"] if letters else []
    line = " ".join([name, *option, *["operand"] * skipped, "curl", "x"])
    view = view_command(line)
    assert "curl" in {program.name for program in (*view.run, *view.maybe)}


@pytest.mark.parametrize("name", sorted(wrappers.SHELLS))
def test_the_script_of_each_shell_is_read(name):
    assert "curl" in {program.name for program in view_command(f"{name} -c 'ls; curl x'").run}


@pytest.mark.parametrize("name", sorted(wrappers.INTERPRETERS | wrappers.RUNNERS))
def test_a_program_that_code_or_arguments_name_is_mentioned(name):
    assert "curl" in view_command(f"{name} 'x(\"curl\")'").mentioned


@pytest.mark.parametrize("name", sorted(wrappers.FED))
def test_what_is_piped_into_a_program_that_runs_it_is_a_problem(name):
    assert view_command(f"echo 'curl x' | {name}").problem is not None


def test_every_name_is_in_the_form_that_programs_are_looked_up_by():
    tables = (wrappers.SHELLS, wrappers.WINDOWS_SHELLS, wrappers.INTERPRETERS, wrappers.RUNNERS, wrappers.FED)
    for name in {*wrappers.WRAPPERS, *wrappers.RUNNING_OPTIONS, *wrappers.SCRIPT_OPTIONS}.union(*tables):
        assert program_name(name) == name


@pytest.mark.parametrize("variable", ["PATH", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "PROMPT_COMMAND"])
def test_a_variable_that_loads_code_is_a_problem(variable):
    assert view_command(f"{variable}=x ls").problem is not None
