"""Changes to clients' configuration files: their backups, their differences, and undoing them byte for byte."""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from proxy.agent import client_config, client_hooks
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.agent.client_config import Rewritten, Syntax
    from proxy.agent.clients import Hook

BACKUP = ".interlock-backup"


class Rewriter(Protocol):
    """What puts Interlock into a text, and takes it out. Each method raises ConfigError."""

    def put_in(self, text: str, interlock: Sequence[str]) -> Rewritten: ...

    def take_out(self, text: str) -> Rewritten: ...

    def commands(self, text: str) -> list[list[str]]:
        """Return the commands of Interlock that are in the text."""
        ...


@dataclass(frozen=True, slots=True)
class ServerRewriter:
    """Puts `interlock run` before the commands of servers."""

    syntax: Syntax

    def put_in(self, text: str, interlock: Sequence[str]) -> Rewritten:
        return client_config.wrap(text, interlock, self.syntax)

    def take_out(self, text: str) -> Rewritten:
        return client_config.unwrap(text, self.syntax)

    def commands(self, text: str) -> list[list[str]]:
        return client_config.prefixes(text, self.syntax)


@dataclass(frozen=True, slots=True)
class HookRewriter:
    """Puts a hook into a client's settings."""

    hook: Hook

    def put_in(self, text: str, interlock: Sequence[str]) -> Rewritten:
        return client_hooks.install(text, interlock, self.hook)

    def take_out(self, text: str) -> Rewritten:
        return client_hooks.remove(text, self.hook)

    def commands(self, text: str) -> list[list[str]]:
        return client_hooks.commands(text, self.hook)


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one file. `before` is None where there is no file, `after` None where there will be none."""

    path: Path
    before: str | None
    after: str | None
    original: str | None
    """The file without Interlock, to be kept as its backup."""
    changed: tuple[str, ...] = ()
    unchanged: tuple[tuple[str, str], ...] = ()
    restores: bool = False

    def difference(self) -> str:
        """Return the change as a unified diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            str(self.path),
            f"{self.path} (changed)",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def apply(self) -> None:
        """Write the change. Raises ConfigError or OSError."""
        backup = _backup(self.path)
        if self.after is None:
            self.path.unlink()
        elif self.after != self.before:
            # The backup first: a crash in between must not leave a changed file without its original.
            if not self.restores and self.original is not None and self.before is not None:
                _replace(backup, self.original.encode(), self.path)
            _replace(self.path, self.after.encode(), self.path)
        if self.restores:
            backup.unlink(missing_ok=True)


def plan(path: Path, rewriter: Rewriter, interlock: Sequence[str], base: str | None = None) -> Change:
    """Return the change that puts Interlock into a file; `base` is what to begin with where there is none.

    Raises ConfigError or OSError.
    """
    before = read(path) if base is None or path.exists() else None
    done = rewriter.put_in(before if before is not None else base or "", interlock)
    original = _original(path, rewriter, before) if before is not None else None
    return Change(path, before, done.text, original, done.changed, tuple(done.unchanged.items()))


def plan_undo(path: Path, rewriter: Rewriter, base: str | None = None) -> Change:
    """Return the change that takes Interlock out of a file: its original, unless it was edited since.

    Raises ConfigError or OSError.
    """
    before = read(path)
    done = rewriter.take_out(before)
    backup = _backup(path)
    after: str | None = done.text
    if backup.exists() and _is_made_from(before, original := read(backup), rewriter):
        after = original
    elif not backup.exists() and base is not None and _is_made_from(before, base, rewriter):
        after = None
    return Change(path, before, after, None, done.changed, tuple(done.unchanged.items()), restores=True)


def read(path: Path) -> str:
    """Return a file's text. Raises ConfigError or OSError."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 (byte {error.start})") from error


def interlock_words() -> list[str]:
    """Return the command that starts this Interlock from any folder, and with any PATH."""
    # Clients that a desktop starts do not have the PATH of the shell: the command is absolute. A link stays one, since
    # it outlives upgrades.
    running = shutil.which(sys.argv[0]) if Path(sys.argv[0]).name == "interlock" else None
    found = running or shutil.which("interlock")
    return [os.path.abspath(found)] if found else [sys.executable, "-m", "proxy.cli"]  # noqa: PTH100  keeps links


def _is_made_from(text: str, original: str, rewriter: Rewriter) -> bool:
    # By the command that is in the text: Interlock may have been installed elsewhere when it was changed.
    with contextlib.suppress(ConfigError):
        return any(rewriter.put_in(original, words).text == text for words in rewriter.commands(text))
    return False


def _original(path: Path, rewriter: Rewriter, before: str) -> str:
    """Return the file without our changes: the existing backup if it still fits."""
    if not rewriter.commands(before):
        return before
    backup = _backup(path)
    original = read(backup) if backup.exists() else None
    if original is not None and _is_made_from(before, original, rewriter):
        return original
    return rewriter.take_out(before).text


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _replace(path: Path, data: bytes, like: Path) -> None:
    """Write `data` to `path`, all of it or nothing, with the mode and owner of `like`; a new file is the owner's."""
    # Not write_private: the client must still be able to read its file, and it may hold API keys that others must not.
    known = like.stat() if like.exists() else None
    if known is not None and not os.access(like, os.W_OK):
        raise ConfigError(f"cannot write {like}; make it writable first, or edit the file it is generated from")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if known is not None:
                with contextlib.suppress(PermissionError):  # only root may change the owner
                    os.fchown(file.fileno(), known.st_uid, known.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(known.st_mode))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
