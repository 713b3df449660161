"""Small files with secrets: readable by their owner only, and never half-written."""

from __future__ import annotations

import contextlib
import fcntl
import hmac
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
SEAL_BYTES = 32


def room_hint(path: Path) -> str:
    """Return a hint for an error message if the disk of `path` is full, else an empty string."""
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), None)
    try:
        free = shutil.disk_usage(folder).free if folder else FULL
    except OSError:
        return ""
    return f"; the disk is full ({free >> 10} KiB left): free space in {folder}" if free < FULL else ""


def write_private(path: Path, data: bytes) -> None:
    """Write `data` to `path` with mode 0600, all of it or nothing."""
    temporary = _write_temporary(path, data)
    try:
        # rename replaces the name atomically: a reader, and a start after a crash, sees the old file or the new one.
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def make_private(path: Path, data: bytes) -> None:
    """Write `data` to `path` with mode 0600 unless the file exists; of several processes, the first wins."""
    temporary = _write_temporary(path, data)
    try:
        # link fails if the name exists, where rename would replace another process's key.
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(temporary)


def _write_temporary(path: Path, data: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp creates the file with mode 0600, so that there is no moment in which others can read it.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            # Before the rename: after a power cut the new name could otherwise point at an empty file.
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def read_private(path: Path) -> bytes:
    """Return the content of a file of secrets. Raises OSError, and ConfigError if others may read or write it."""
    with path.open("rb") as file:
        # The mode of the open file, not of the path: the path may be replaced in between.
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            command = f"chmod 600 {shlex.quote(str(path))}"
            raise ConfigError(f"{path} contains a secret and is open to others (mode {mode:04o}); run: {command}")
        return file.read()


def read_or_make_key(path: Path, size: int) -> bytes:
    """Return the key at `path`, and create a random one on first use; safe for several processes at once.

    Raises ConfigError if the file has another size.
    """
    if not path.exists():
        make_private(path, secrets.token_bytes(size))
    key = path.read_bytes()
    if len(key) != size:
        raise ConfigError(f"{path} has {len(key)} bytes, not {size}; restore it, or delete it to create a new one")
    return key


class FileCache:
    """A cache of the newest `limit` files in a folder. A file that cannot be read or written is a miss."""

    # Far above what one start puts there: with room for one less, each start would miss what the last one dropped.
    def __init__(self, folder: Path, limit: int = 64) -> None:
        self._folder = folder
        self._limit = limit

    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            return None

    def put(self, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            write_private(self._folder / name, data)
            newest = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime_ns, reverse=True)
            for old in newest[self._limit :]:
                old.unlink()


class SealedCache:
    """A cache whose entries count only with a MAC of their name and content: another's, or a damaged one, is a miss."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._files = FileCache(folder)
        self._key = key

    def get(self, name: str) -> bytes | None:
        entry = self._files.get(name) or b""
        seal, data = entry[:SEAL_BYTES], entry[SEAL_BYTES:]
        return data if hmac.compare_digest(seal, self._seal(name, data)) else None

    def put(self, name: str, data: bytes) -> None:
        self._files.put(name, self._seal(name, data) + data)

    def _seal(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._key, name.encode() + b"\0" + data, "sha256")


class FolderLock:
    """Locks a folder for one process; the kernel releases it when the process ends, however it ends."""

    def __init__(self, folder: Path, handed: int | None = None) -> None:
        """Lock the folder. Raises ConfigError if another process has it.

        `handed` is a descriptor of the lock, from the process that has it: the kernel releases a lock once every
        process that was given it has closed it.
        """
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if handed is not None:
            self._file = os.fdopen(handed, "a+")
            return
        self._file = (folder / "lock").open("a+")
        self._file.seek(0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = self._file.read().strip()
            self._file.close()
            raise ConfigError(
                f"setting state_dir = {str(folder)!r}: another interlock uses it"
                f"{f' (process {owner})' if owner.isdigit() else ''}; "
                "stop it with `interlock stop`, or give this one its own folder with --state-dir"
            ) from None
        self.sign()

    def sign(self) -> None:
        """Write down that this process has the lock."""
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def release(self) -> None:
        self._file.close()
