"""Small files with secrets in them: made once, readable by their owner alone, never half-written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shlex
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


FULL = 1 << 20


def room_hint(path: Path) -> str:
    """Return what to add to an error about a file where its disk is full; else nothing."""
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), None)
    try:
        free = shutil.disk_usage(folder).free if folder else FULL
    except OSError:
        return ""
    return f"; its disk is full, with {free >> 10} KiB left: make room in {folder}" if free < FULL else ""


def write_private(path: Path, data: bytes) -> None:
    """Put `data` at `path` with mode 0600, whole or not at all."""
    temporary = _write_temporary(path, data)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def make_private(path: Path, data: bytes) -> None:
    """Put `data` at `path` with mode 0600 unless something is there; the first of several processes counts."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(temporary)


def _write_temporary(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def read_private(path: Path) -> bytes:
    """Return what is in a file of secrets.

    Raises ConfigError where others than its owner may read or write it, and OSError
    where it cannot be read.
    """
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            command = f"chmod 600 {shlex.quote(str(path))}"
            raise ConfigError(f"{path} holds a secret, and others may use it (mode {mode:04o}); run: {command}")
        return file.read()


def read_or_make_key(path: Path, size: int) -> bytes:
    """Return the key at `path`, made at random on first use.

    Safe when several processes come first at once. Raises ConfigError where the
    file is not a key of that size.
    """
    if not path.exists():
        make_private(path, secrets.token_bytes(size))
    key = path.read_bytes()
    if len(key) != size:
        raise ConfigError(f"{path} holds {len(key)} bytes, not {size}; restore it or delete it to make a new one")
    return key


class FileCache:
    """Bytes by name in a folder of the state folder, the newest `limit` of them; what cannot be read is not there."""

    def __init__(self, folder: Path, limit: int = 8) -> None:
        self._folder = folder
        self._limit = limit

    def get(self, name: str) -> bytes | None:
        """Return what was put under `name`, if anything."""
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            return None

    def put(self, name: str, data: bytes) -> None:
        """Keep `data` under `name`, or don't."""
        with contextlib.suppress(OSError):
            write_private(self._folder / name, data)
            kept = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime_ns, reverse=True)
            for old in kept[self._limit :]:
                old.unlink()


class FolderLock:
    """Holds a folder for one process until the process ends."""

    def __init__(self, folder: Path) -> None:
        """Take the folder.

        Raises ConfigError where another process has it.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = (folder / "lock").open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ConfigError(
                f"setting state_dir = {str(folder)!r}: another interlock uses it; "
                "stop that one, or give this one a folder of its own with --state-dir"
            ) from None

    def release(self) -> None:
        """Let the folder go."""
        self._file.close()
