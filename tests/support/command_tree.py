"""Every command of the command line, as its parser knows it."""

from __future__ import annotations

import functools
from typing import Any

from typer.main import get_command

from proxy.commands.command_tree import app
from proxy.commands.lazy import Placeholder


@functools.cache
def commands() -> dict[str, Any]:
    """Return every command by how it is called, such as `interlock audit tail`."""
    return _leaves(get_command(app), "interlock")


def _leaves(command: Any, path: str) -> dict[str, Any]:
    real = command.load() if isinstance(command, Placeholder) else command
    children = getattr(real, "commands", None)
    if children is None:
        return {path: real}
    return {name: leaf for key, child in children.items() for name, leaf in _leaves(child, f"{path} {key}").items()}


def options(name: str) -> list[str]:
    """Return the flags that a command takes."""
    return [option for parameter in commands()[name].params for option in parameter.opts]


def examples(name: str) -> list[str]:
    """Return the lines of a command's epilog that are examples."""
    lines = (line.strip().removeprefix("Example:").strip() for line in (commands()[name].epilog or "").splitlines())
    return [line for line in lines if line and line != "Examples:"]
