"""Second places for signed checkpoints, out of reach of whoever tampers with the store.

Files, folders, object stores, another Postgres. In a folder each proxy has a file of its own, in an object store each
process has objects of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from proxy.audit.checkpoints import append
from proxy.audit.open_archive import open_folder
from proxy.audit.writers import WriterRegistry
from proxy.core.ids import new_id
from proxy.errors import ConfigError
from proxy.store.open_store import open_database
from proxy.system.database_url import shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from proxy.audit.checkpoints import Checkpoint

SECONDS = 10.0
OBJECT_LINES = 1000
_FILES = "interlock-*.jsonl"


class CheckpointPlace(Protocol):
    """Takes checkpoints, and gives back every line that it has. Methods wait."""

    name: str

    def add(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Store checkpoints, durably. Raises OSError or InterlockError where that fails."""

    def lines(self) -> list[bytes]:
        """Return all lines. Raises InterlockError where they cannot be read."""


class FilePlace:
    """One file; `others` are files beside it that are read as well."""

    def __init__(self, path: Path, others: Callable[[], list[Path]] = list) -> None:
        self.name = str(path)
        self._path = path
        self._others = others

    def add(self, checkpoints: Sequence[Checkpoint]) -> None:
        append(self._path, checkpoints)

    def lines(self) -> list[bytes]:
        found: list[bytes] = []
        try:
            for path in self._others() or [self._path]:
                if path.exists():
                    # A last line without its end is just being written.
                    found += path.read_bytes().split(b"\n")[:-1]
        except OSError as error:
            raise ConfigError(f"the checkpoints in {self.name} cannot be read ({error.strerror})") from error
        return found


class ObjectPlace:
    """A folder of an object store. An object is written whole, so one that grows is replaced, up to OBJECT_LINES."""

    def __init__(self, url: str) -> None:
        self.name = url
        self._object = ""
        self._lines: list[str] = []

    def add(self, checkpoints: Sequence[Checkpoint]) -> None:
        lines = [*self._lines, *(checkpoint.line() for checkpoint in checkpoints)]
        # A name that no other process has, nor this one after a restart: nothing is ever read to be written again.
        name = self._object or f"interlock-{new_id()}.jsonl"
        open_folder(self.name).write(name, "".join(f"{line}\n" for line in lines).encode())
        full = len(lines) >= OBJECT_LINES
        self._object, self._lines = ("", []) if full else (name, lines)

    def lines(self) -> list[bytes]:
        folder = open_folder(self.name)
        names = [name for name in folder.names() if fnmatch(name, _FILES)]
        return [line for name in names for line in folder.read(name).split(b"\n") if line]


class DatabasePlace:
    """The table audit_checkpoints of another Postgres, which `interlock db migrate` has made."""

    def __init__(self, url: str) -> None:
        self.name = shown(url)
        self._url = url

    def add(self, checkpoints: Sequence[Checkpoint]) -> None:
        self._use(lambda registry: registry.add(checkpoints))

    def lines(self) -> list[bytes]:
        return self._use(WriterRegistry.lines)

    def _use[T](self, work: Callable[[WriterRegistry], Awaitable[T]]) -> T:
        async def use() -> T:
            database = open_database(self._url, Path(), timeout=SECONDS)
            try:
                return await work(WriterRegistry(database))
            finally:
                await database.close()

        # In a thread: the caller's may run an event loop already. Connected anew each time, since it is seldom used.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(use())).result()


def open_place(text: str, state_dir: Path) -> CheckpointPlace:
    """Return the place that a setting names: a Postgres, an object store, a folder (exists, or ends in /), a file."""
    if text.startswith(("postgres://", "postgresql://")):
        return DatabasePlace(text)
    if "://" in text:
        return ObjectPlace(text)
    path = Path(text).expanduser()
    if not text.endswith("/") and not path.is_dir():
        return FilePlace(path)
    owner = hashlib.sha256(f"{socket.gethostname()}\0{state_dir.absolute()}".encode()).hexdigest()[:16]
    return FilePlace(path / f"interlock-{owner}.jsonl", lambda: sorted(path.glob(_FILES)))
