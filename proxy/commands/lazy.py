"""Imports a command's module only when that command runs, so that `--help` and others start fast."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command, get_group

from proxy.system import gc_tuning

if TYPE_CHECKING:
    from types import ModuleType

    from typer._click import Command, Context


def spaced(epilog: str) -> str:
    """Return an epilog as typer needs it: it joins lines that have no blank line between them."""
    return epilog.replace("\n", "\n\n")


@dataclass(frozen=True)
class CommandEntry:
    """A command before its module, proxy.commands.NAME, is imported."""

    name: str
    summary: str
    panel: str


class Placeholder(TyperCommand):
    """Represents a command in help, suggestions and shell completion."""

    def __init__(self, entry: CommandEntry) -> None:
        super().__init__(entry.name, help=entry.summary, rich_help_panel=entry.panel)
        self._entry = entry

    def load(self) -> Command:
        """Import and return the command: its module's `app`, or the function of its name with the module's EPILOG."""
        name = self._entry.name
        module = sys.modules.get(f"proxy.commands.{name}") or _import(f"proxy.commands.{name}")
        if hasattr(module, "app"):
            # Only the list of commands knows the name; without it the usage line shows the program's.
            group = get_group(module.app)
            group.name = name
            return _with_paragraphs(group)
        alone = typer.Typer(add_completion=False)
        # `exec` is a builtin: its function is named exec_.
        function = getattr(module, name, None) or getattr(module, f"{name}_")
        alone.command(name, cls=getattr(module, "CommandClass", None), epilog=spaced(module.EPILOG))(function)
        return _with_paragraphs(get_command(alone))


def _with_paragraphs(command: Command) -> Command:
    """Return a command whose help is as wide as the terminal: typer would keep the line breaks of its docstring."""
    if command.help:
        command.help = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    for child in getattr(command, "commands", {}).values():
        _with_paragraphs(child)
    return command


def _show_type(option: TyperOption, ctx: Context) -> str | None:
    # `--json <bool>` reads as if it wanted a value.
    return None if option.is_flag else _typers_own(option, ctx)


_typers_own = TyperOption.display_type_rich
setattr(TyperOption, "display_type_rich", _show_type)  # noqa: B010  mypy takes no method of another form


def _import(name: str) -> ModuleType:
    # Imports create many objects and almost no garbage: collections in between only cost time.
    gc_tuning.pause_collection()
    try:
        importlib.import_module("proxy.system.log_setup")  # first: it imports structlog without rich
        return importlib.import_module(name)
    finally:
        gc_tuning.freeze()


class LazyGroup(TyperGroup):
    """A group that lists `entries` and loads the one that is called."""

    entries: ClassVar[tuple[CommandEntry, ...]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for entry in self.entries:
            self.add_command(Placeholder(entry))

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Placeholder) else command, rest
