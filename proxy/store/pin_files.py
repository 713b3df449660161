"""Tool pins on disk: one small JSON file for each server, in the state folder.

Read without a lock, because a file is replaced as a whole; written under one, so that two processes that list a
server at once lose nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

from proxy.errors import ConfigError, PinsUnavailableError
from proxy.gate.tool_pins import Pin, ServerPins, approve, from_json, to_json
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


FOLDER = "pins"
MAX_BYTES = 32 << 20
MAX_SERVERS = 1000
LOCK_SECONDS = 2.0
LOOK_SECONDS = 0.01  # how long a file is taken to be unchanged once it was looked at: one call reads pins several times

type Stamp = tuple[int, int, int]


def file_stem(server: str) -> str:
    """Return the name of a server's file, without its ending: a server's own name may be anything."""
    return hashlib.sha256(server.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def named_pin(known: ServerPins, server: str, tool: str | None, card: str | None = None) -> Pin:
    """Return the pin of a tool or of a card; neither names the instructions. Raises ConfigError where there is none."""
    if card is not None:
        if card not in known.cards:
            names = ", ".join(sorted(known.cards)) or "none"
            raise ConfigError(f"the server {server!r} has no pinned card at {card!r}; pinned cards: {names}")
        return known.cards[card]
    if tool is None:
        if known.instructions is None:
            raise ConfigError(
                f"the server {server!r} has no pinned instructions; they are pinned when a client connects"
            )
        return known.instructions
    if tool not in known.tools:
        names = ", ".join(repr(name)[1:-1] for name in sorted(known.tools)) or "none"
        raise ConfigError(f"the server {server!r} has no pinned tool {tool!r}; pinned tools: {names}")
    return known.tools[tool]


def _check_digest(seen: str, digest: str | None) -> None:
    # The tool may have changed after the operator looked at it. Fewer than 8 characters would be guessable.
    if digest is not None and (len(digest) < 8 or not seen.startswith(digest)):
        raise ConfigError(f"the tool's digest is now {seen}, not {digest!r}; check it with `pins show`")


class PinFiles:
    """The `tool_pins.PinStore` of one state folder. A change on disk is seen LOOK_SECONDS later."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER
        self._cache: dict[str, tuple[Stamp, str, ServerPins]] = {}
        self._looks: dict[str, tuple[float, ServerPins | None]] = {}
        self._files: dict[str, Path] = {}  # to make a path takes longer than to stat it

    def read(self, server: str) -> ServerPins | None:
        """Return a server's pins; None where it was never seen."""
        look, now = self._looks.get(server), time.monotonic()
        if look is None or look[0] <= now:
            if len(self._looks) >= MAX_SERVERS:
                self._looks.clear()
            look = self._looks[server] = (now + LOOK_SECONDS, self._read(server))
        return look[1]

    def _read(self, server: str) -> ServerPins | None:
        found = self._load(self._file(server))
        if found is not None and found[0] != server:
            # Two names with one hash, or a file that somebody copied: another server's approvals must not count.
            raise PinsUnavailableError(f"{self._file(server)} is of the server {found[0]!r}, not {server!r}")
        return found and found[1]

    def update(self, server: str, change: Callable[[ServerPins | None], ServerPins | None]) -> ServerPins | None:
        """Replace a server's pins by what `change` returns; return the new ones. Raises PinsUnavailableError."""
        # Without the lock first: almost every listing changes nothing.
        known = self._read(server)
        if change(known) is known:
            return known
        try:
            with self._lock():
                return self._replace(server, change)
        except OSError as error:
            raise PinsUnavailableError(f"pins cannot be written in {self.folder}: {error.strerror}") from error

    def approve(
        self,
        server: str,
        tool: str | None,
        digest: str | None,
        now: float,
        *,
        instructions: bool = False,
        card: str | None = None,
    ) -> None:
        """Approve a tool, a server's instructions, a card, or all that a server says, as last seen.

        Raises ConfigError where it has another digest by now.
        """

        def change(known: ServerPins | None) -> ServerPins | None:
            if known is None:
                names = ", ".join(self.servers()) or "none"
                raise ConfigError(f"server {server!r} has no pins; servers with pins: {names}")
            if tool is not None or instructions or card is not None:
                _check_digest(named_pin(known, server, tool, card).seen.digest, digest)
            return approve(known, tool, now, instructions=instructions, card=card)

        self.update(server, change)

    def forget(self, server: str) -> None:
        """Delete a server's pins: it is pinned anew when it is seen next."""
        self.update(server, lambda _: None)

    def put(self, server: str, pins: ServerPins | None) -> None:
        """Replace a server's pins, whatever they were: those that replicas share are put here."""
        if self._read(server) == pins:
            return
        try:
            with self._lock():
                self._write(server, pins)
        except OSError as error:
            raise PinsUnavailableError(f"pins cannot be written in {self.folder}: {error.strerror}") from error

    def servers(self) -> Sequence[str]:
        return sorted(self.approvals())

    def approvals(self) -> dict[str, int]:
        """Return for each server how often somebody changed what is approved."""
        found = (self._load(file) for file in self.folder.glob("*.json"))
        return {entry[0]: entry[1].approvals for entry in found if entry is not None}

    def _replace(self, server: str, change: Callable[[ServerPins | None], ServerPins | None]) -> ServerPins | None:
        known = self._read(server)  # again, now under the lock
        pins = change(known)
        if pins is not known:
            if pins is not None:
                self.check_room(server)
            self._write(server, pins)
        return pins

    def check_room(self, server: str) -> None:
        """Raise PinsUnavailableError where a server is one too many."""
        if not self._file(server).exists() and sum(1 for _ in self.folder.glob("*.json")) >= MAX_SERVERS:
            raise PinsUnavailableError(f"more than {MAX_SERVERS} servers have pins; `interlock pins forget` some")

    def _write(self, server: str, pins: ServerPins | None) -> None:
        if pins is None:
            self._file(server).unlink(missing_ok=True)
        else:
            data = json.dumps({"server": server, **to_json(pins)}).encode()
            if len(data) > MAX_BYTES:
                raise PinsUnavailableError(f"a server's pins would take more than {MAX_BYTES} bytes")
            write_private(self._file(server), data)
        self._looks.pop(server, None)

    def _load(self, file: Path) -> tuple[str, ServerPins] | None:
        try:
            stat = file.stat()
            # The inode too: a file that replaces another within one tick of the clock has another.
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            cached = self._cache.get(file.name)
            if cached is None or cached[0] != stamp:
                value = json.loads(file.read_bytes())
                cached = self._cache[file.name] = (stamp, str(value["server"]), from_json(value))
        except FileNotFoundError:
            self._cache.pop(file.name, None)
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PinsUnavailableError(
                f"{file} cannot be read ({error}); restore it, or delete it to pin the server anew"
            ) from error
        return cached[1], cached[2]

    def _file(self, server: str) -> Path:
        file = self._files.get(server)
        if file is None:
            if len(self._files) >= MAX_SERVERS:
                self._files.clear()
            file = self._files[server] = self.folder / f"{file_stem(server)}.json"
        return file

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            locked, deadline = False, time.monotonic() + LOCK_SECONDS
            while not locked:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    locked = True
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise PinsUnavailableError("another process keeps the pins locked") from None
                    time.sleep(0.005)
            yield
        finally:
            os.close(handle)
