"""The list of commands; tests/test_cli.py tests what holds for each of them."""

from __future__ import annotations

from pathlib import Path

from proxy import commands
from proxy.commands.command_tree import Commands


def test_every_entry_has_its_module_or_package() -> None:
    folder = Path(commands.__file__).parent
    for entry in Commands.entries:
        assert (folder / f"{entry.name}.py").is_file() or (folder / entry.name).is_dir(), entry.name
