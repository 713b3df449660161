"""`interlock wrap`: changes an MCP client's configuration so that its stdio servers run behind the proxy."""

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
    file: Annotated[Path, typer.Argument(help="The client's configuration file: JSON with mcpServers or servers.")],
    undo: Annotated[bool, typer.Option("--undo", help="Restore the original configuration.")] = False,  # noqa: FBT002
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes without making them.")] = False,  # noqa: FBT002
) -> None:
    """Change an MCP client's configuration: run its servers behind the proxy.

    Each stdio server's command becomes `interlock run -- COMMAND`. Servers reached by URL and
    everything else in the file stay as they are. The original is saved as FILE.interlock-backup.
    Running it again changes nothing.
    """
    # Resolved, since dotfile managers link these files: a rename onto the link would replace it by a plain file.
    path = file.expanduser().resolve()
    before = _read(path)
    try:
        after, messages = _undone(path, before) if undo else _wrapped(before)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    if dry_run:
        sys.stdout.write(_difference(file, before, after))
    elif after != before:
        # The backup first: a crash in between must not leave a wrapped file without its original.
        if not undo:
            _replace(_backup(path), _original(path, before).encode(), path)
        _replace(path, after.encode(), path)
    if undo and not dry_run:
        _backup(path).unlink(missing_ok=True)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for line in messages:
        console.print(escape(line))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start})") from error


def _wrapped(before: str) -> tuple[str, list[str]]:
    rewritten = client_config.wrap(before, interlock_words())
    messages = [f"{name}: wrapped" for name in rewritten.changed]
    messages += [f"{name}: not changed, {why}" for name, why in rewritten.unchanged.items()]
    if rewritten.changed:
        messages.append("Restart the client to apply it; `interlock wrap --undo` restores the file.")
    return rewritten.text, messages


def _undone(path: Path, before: str) -> tuple[str, list[str]]:
    """Return the original byte for byte; if the file was edited since, the edited file without our changes."""
    backup = _backup(path)
    if backup.exists():
        original = _read(backup)
        if _is_made_from(before, original):
            return original, ["The original file is restored."]
    rewritten: Rewritten = client_config.unwrap(before)
    if not rewritten.changed:
        return before, ["No server in this file is wrapped."]
    return rewritten.text, [f"{name}: unwrapped" for name in rewritten.changed]


def _is_made_from(text: str, original: str) -> bool:
    # By either name: Interlock may have been installed differently when the file was wrapped.
    return any(client_config.wrap(original, words).text == text for words in (["interlock"], interlock_words()))


def _original(path: Path, before: str) -> str:
    """Return the file without our changes: the existing backup if it still fits."""
    plain = client_config.unwrap(before)
    if not plain.changed:
        return before
    backup = _backup(path)
    original = _read(backup) if backup.exists() else None
    return original if original is not None and _is_made_from(before, original) else plain.text


def interlock_words() -> list[str]:
    """Return the command that starts this Interlock from any folder."""
    if shutil.which("interlock") is not None:
        return ["interlock"]
    script = Path(sys.argv[0])
    if script.name == "interlock" and script.exists():
        return [str(script.resolve())]
    return [sys.executable, "-m", "proxy.cli"]


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _replace(path: Path, data: bytes, like: Path) -> None:
    """Write `data` to `path`, all of it or nothing, with the mode and owner of `like`."""
    # Not write_private: the client must still be able to read its file, and it may hold API keys that others must not.
    known = like.stat()
    if not os.access(like, os.W_OK):
        raise ConfigError(f"cannot write {like}; make it writable first, or edit the file it is generated from")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            with contextlib.suppress(PermissionError):  # only root may change the owner
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
