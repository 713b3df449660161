"""Commands that are imported when they are asked for."""

from __future__ import annotations

import pytest

from proxy.commands.command_tree import Commands
from proxy.commands.lazy import CommandEntry, Placeholder


@pytest.mark.parametrize("entry", Commands.entries, ids=lambda entry: entry.name)
def test_a_command_says_of_itself_what_is_said_before_it_is_imported(entry: CommandEntry) -> None:
    real = Placeholder(entry).load()
    assert real.name == entry.name
    assert (real.help or "").partition("\n")[0] == entry.summary


def test_panels_are_not_torn_apart() -> None:
    panels = [entry.panel for entry in Commands.entries]
    assert panels == sorted(panels, key=panels.index)
