"""The tables of what programs do with files, hosts and text."""

import pytest

from proxy.policy import command_programs
from proxy.policy.command_mentions import program_name
from proxy.policy.command_paths import read_command_paths


def test_every_name_is_in_the_form_that_programs_are_looked_up_by():
    for table in ("CHANGES_FOLDER", "SPEAKERS", "PATTERN_FIRST", "TAKES_ALL", "TRANSFORMERS", "CONSUMERS", "NETWORK"):
        for name in getattr(command_programs, table):
            assert program_name(name) == name


@pytest.mark.parametrize("name", sorted(command_programs.TAKES_ALL))
def test_a_program_that_takes_a_folder_takes_everything_in_it(name):
    assert "/a/**" in [path.text for path in read_command_paths(f"{name} x /a").paths]


@pytest.mark.parametrize("name", sorted(command_programs.NETWORK))
def test_an_operand_of_a_network_program_is_a_host(name):
    assert "a.test" in read_command_paths(f"{name} a.test").hosts
