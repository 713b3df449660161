"""`interlock wrap`: an MCP client's stdio servers put behind Interlock, and back."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from proxy.agent import client_config
from proxy.agent.client_config import Rewritten
from proxy.errors import ConfigError

EPILOG = """
Examples:

  interlock wrap ~/.cursor/mcp.json --dry-run

  interlock wrap ~/.cursor/mcp.json

  interlock wrap ~/.cursor/mcp.json --undo
"""
BACKUP = ".interlock-backup"


def wrap(
    file: Annotated[Path, typer.Argument(help="The client's configuration: JSON with mcpServers or servers.")],
    undo: Annotated[bool, typer.Option("--undo", help="Put it back as it was.")] = False,  # noqa: FBT002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,  # noqa: FBT002
) -> None:
    """Put an MCP client's stdio servers behind the proxy, and back.

    Its configuration is rewritten so that they run behind `interlock run`.

    Servers reached by URL are left alone, and so is everything else in the file. The
    file as it was is kept beside it, as FILE.interlock-backup. Doing it again
    changes nothing.
    """
    path = file.expanduser().resolve()
    before = _read(path)
    try:
        after, told = _undone(path, before) if undo else _wrapped(before)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if dry_run:
        sys.stdout.write(_difference(file, before, after))
    elif after != before:
        if not undo:
            _replace(_backup(path), _original(path, before).encode(), path)
        _replace(path, after.encode(), path)
    if undo and not dry_run:
        _backup(path).unlink(missing_ok=True)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for line in told:
        console.print(escape(line))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not UTF-8 (byte {error.start})") from error


def _wrapped(before: str) -> tuple[str, list[str]]:
    rewritten = client_config.wrap(before, interlock_words())
    told = [f"{name}: wrapped" for name in rewritten.changed]
    told += [f"{name}: left alone, since {why}" for name, why in rewritten.unchanged.items()]
    if rewritten.changed:
        told.append("Restart the client to use it; `interlock wrap --undo` puts the file back.")
    return rewritten.text, told


def _undone(path: Path, before: str) -> tuple[str, list[str]]:
    """Return the file as it was, byte for byte; where it was edited since, without what wrapping put in."""
    backup = _backup(path)
    if backup.exists():
        original = _read(backup)
        if _is_made_from(before, original):
            return original, ["The file is as it was."]
    rewritten: Rewritten = client_config.unwrap(before)
    if not rewritten.changed:
        return before, ["No server in it is wrapped."]
    return rewritten.text, [f"{name}: unwrapped" for name in rewritten.changed]


def _is_made_from(text: str, original: str) -> bool:
    """Return whether wrapping `original`, by whatever name Interlock had then, gives `text`."""
    return any(client_config.wrap(original, words).text == text for words in (["interlock"], interlock_words()))


def _original(path: Path, before: str) -> str:
    """Return the file without anything of ours: the backup that is there already, where it still tells."""
    plain = client_config.unwrap(before)
    if not plain.changed:
        return before
    backup = _backup(path)
    original = _read(backup) if backup.exists() else None
    return original if original is not None and _is_made_from(before, original) else plain.text


def interlock_words() -> list[str]:
    """Return the words that start this Interlock from anywhere."""
    found = shutil.which("interlock")
    script = Path(sys.argv[0])
    if found is not None:
        return ["interlock"]
    if script.name == "interlock" and script.exists():
        return [str(script.resolve())]
    return [sys.executable, "-m", "proxy.cli"]


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _replace(path: Path, data: bytes, like: Path) -> None:
    """Put `data` at `path`, whole or not at all, with the mode and owner of `like`."""
    known = like.stat()
    if not os.access(like, os.W_OK):
        raise ConfigError(f"{like} cannot be written; make it writable first, or edit it where it comes from")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(PermissionError):  # whoever may not give it away has it by right
                os.fchown(file.fileno(), known.st_uid, known.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _difference(file: Path, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(file), f"{file} (wrapped)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
