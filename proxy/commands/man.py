"""`interlock man`: the manual page, made from the tree of commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from proxy.commands.lazy import LazyGroup, Placeholder
from proxy.commands.options import AsJson
from proxy.commands.terminal import print_json_lines

if TYPE_CHECKING:
    from typer._click import Command, Parameter

EPILOG = """
Examples:
  interlock man
  interlock man | groff -man -Tutf8 | less
"""
DESCRIPTION = (
    "Interlock stands between AI agents and MCP servers, remote and local. It decides every call by a policy, masks "
    "secrets, and records what happened. Every command prints JSON with --json."
)
FILES = (
    ("interlock.yaml", "Settings, in the folder that the command is run in; --config names another."),
    (
        "~/.local/state/interlock",
        "The state folder: CA, keys, tokens, and the audit log; --state-dir names another.",
    ),
)
EXIT = (
    ("0", "Success."),
    ("1", "An error: one message on stderr, or one JSON object with --json."),
    ("2", "Wrong usage."),
    ("130", "Ctrl-C."),
)


def man(ctx: typer.Context, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Show the manual page: every command with its options.

    On a terminal it is shown by man. In a pipe or a file it is the page's source, for man -l or groff -man.
    """
    root = ctx.find_root().command
    page = manual_page(root)
    if as_json:
        print_json_lines([{"page": page}])
        return
    viewer = shutil.which("man") if sys.stdout.isatty() else None
    if viewer is None:
        typer.echo(page, nl=False)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".1") as file:
        file.write(page)
        file.flush()
        subprocess.run([viewer, "-l", file.name], check=False)  # noqa: S603


def manual_page(root: Command) -> str:
    """Return the page in the man macros."""
    from proxy.system.package_data import version  # noqa: PLC0415  takes a tenth of a second

    assert isinstance(root, LazyGroup)
    parts = [
        f'.TH INTERLOCK 1 "" "interlock {version()}" "User Commands"',
        ".SH NAME",
        r"interlock \- see, stop and record what the MCP tools of an AI agent do",
        ".SH SYNOPSIS",
        ".B interlock",
        r".RI [ options ]\~ command \~[ arguments ]",
        ".SH DESCRIPTION",
        _text(DESCRIPTION),
    ]
    for panel in dict.fromkeys(entry.panel for entry in root.entries):
        parts.append(f".SH {_text(panel).upper()}")
        for entry in root.entries:
            if entry.panel == panel:
                parts.extend(_command(root.commands[entry.name], f"interlock {entry.name}"))
    parts += [".SH EXIT STATUS", *_pairs(EXIT), ".SH FILES", *_pairs(FILES)]
    parts += [
        ".SH ENVIRONMENT",
        _text("Every setting is also a variable: INTERLOCK_LISTEN for listen. NO_COLOR: no colours."),
    ]
    return "\n".join(parts) + "\n"


def _command(command: Command, path: str) -> Iterator[str]:
    real = command.load() if isinstance(command, Placeholder) else command
    children: dict[str, Command] = getattr(real, "commands", {})
    if children:
        for name, child in children.items():
            yield from _command(child, f"{path} {name}")
        return
    yield f".SS {_text(path)}"
    yield from _paragraphs(real.help or "")
    for parameter in real.params:
        yield from _parameter(parameter)
    lines = [line.strip() for line in (real.epilog or "").splitlines() if line.strip()]
    examples = [line.removeprefix("Example:").strip() for line in lines if line != "Examples:"]
    yield from (".PP", "Examples:", ".PP", ".nf", ".RS 4", *map(_text, examples), ".RE", ".fi")


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _parameter(parameter: Parameter) -> Iterator[str]:
    if parameter.param_type_name == "argument":
        name = rf"\fI{_text(parameter.metavar or (parameter.name or '').upper())}\fR"
    else:
        flags = ", ".join(rf"\fB{_text(flag)}\fR" for flag in (*parameter.opts, *parameter.secondary_opts))
        metavar = parameter.metavar or (parameter.name or "").upper()
        name = flags if getattr(parameter, "is_flag", False) else rf"{flags} \fI{_text(metavar)}\fR"
    yield ".TP"
    yield name
    yield _text(getattr(parameter, "help", None) or "")


def _pairs(pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, text in pairs:
        yield from (".TP", rf"\fB{_text(name)}\fR", _text(text))


def _text(text: str) -> str:
    """Return text for roff: no character of it is a command, and hyphens can be searched for and copied."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    escaped = escaped.replace("~", r"\(ti").replace("^", r"\(ha").replace('"', r"\(dq")
    escaped = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
