"""What names say about values."""

import pytest

from proxy.policy.argument_names import argument_kind, tool_kind


@pytest.mark.parametrize("name", ["path", "filepath", "targetfile", "workingdirectory", "paths", "outputdir"])
def test_names_of_paths(name):
    assert argument_kind(name).path


@pytest.mark.parametrize("name", ["xpath", "jsonpointer", "urlpath", "regex", "oldstring", "newtext"])
def test_names_of_paths_that_are_no_files(name):
    assert argument_kind(name).other_path
    assert not argument_kind(name).path


@pytest.mark.parametrize("name", ["command", "cmd", "shellcommand", "commandline", "argv", "cmdline"])
def test_names_of_command_lines(name):
    assert argument_kind(name).command


def test_other_names():
    assert argument_kind("baseurl").host
    assert argument_kind("commands").command_list
    assert argument_kind("args").arguments
    assert argument_kind("title").prose
    assert argument_kind("source").place
    assert argument_kind("script").script
    assert not any(argument_kind("limit"))


@pytest.mark.parametrize(
    "name", ["bash", "start_process", "runCommand", "ssh", "my-cli", "docker_runnershell", "execute", "run_sql_shell"]
)
def test_tools_that_run_commands(name):
    assert tool_kind(name).runs


@pytest.mark.parametrize("name", ["read_file", "PowerShell", "run_pwsh", "execute_sql", "run_query", "run_python"])
def test_tools_that_do_not(name):
    assert not tool_kind(name).runs


def test_tools_that_make_requests():
    assert tool_kind("http_request").web
    assert not tool_kind("read_file").web
