"""Where the keys of an issuer come from: its own address, fetched in the background and kept for a while, or a file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from proxy.identity.issuer_http import UnreachableError, UnreadableAnswerError, ask_json, check_url
from proxy.identity.jwt import KeySet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = structlog.get_logger("interlock.identity")

AGAIN_SECONDS: Final = 10.0
"""Between two fetches that tokens ask for: anybody can name a key that does not exist."""
MAX_FILE: Final = 1 << 20


class KeysUnavailableError(Exception):
    """There are no keys that count now."""


class KeySource(Protocol):
    """The keys of one issuer."""

    version: int
    """Counts the times that the keys have changed."""

    def current(self) -> KeySet:
        """Return the keys, without waiting. Raises KeysUnavailableError."""
        ...

    async def renew(self) -> bool:
        """Fetch the keys now, where that was not tried just before; return whether there are others since."""
        ...

    async def follow(self) -> None:
        """Keep the keys up to date. Runs until cancelled."""
        ...


class RemoteKeys:
    """The keys that an issuer serves. They count for `kept` seconds after the last fetch that worked."""

    def __init__(
        self,
        issuer: str,
        *,
        jwks_url: str | None = None,
        ca_file: Path | None = None,
        headers: Callable[[str], dict[str, str]] = lambda _address: {},
        refresh: float = 300.0,
        kept: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = 0
        self._issuer, self._jwks_url, self._ca_file, self._headers = issuer, jwks_url, ca_file, headers
        self._refresh, self._kept, self._clock = refresh, kept, clock
        self._keys: KeySet | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._running: asyncio.Task[bool] | None = None

    def current(self) -> KeySet:
        if self._keys is None or self._clock() - self._fetched_at > self._kept:
            raise KeysUnavailableError("the issuer's keys could not be fetched")
        return self._keys

    async def renew(self) -> bool:
        # One fetch for all that wait, and it goes on where one of them gives up.
        if self._running is None or self._running.done():
            if self._clock() - self._tried_at < AGAIN_SECONDS:
                return False
            self._running = asyncio.create_task(self._fetch())
        return await asyncio.shield(self._running)

    async def follow(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # logged where it happened
                await self.renew()
            behind = self._clock() - self._fetched_at > self._refresh
            await asyncio.sleep(AGAIN_SECONDS if behind else self._refresh)

    async def _fetch(self) -> bool:
        self._tried_at = self._clock()
        try:
            found = _some(await self._get(self._jwks_url or await self._discover()))
        except (UnreachableError, UnreadableAnswerError, ValueError, TypeError) as error:
            log.warning("an issuer's keys could not be fetched", issuer=self._issuer, error=str(error))
            return False
        self._fetched_at = self._clock()
        changed = found != self._keys
        if changed:
            self.version += 1
        self._keys = found
        return changed

    async def _discover(self) -> str:
        found = await self._get(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if not isinstance(found, dict) or found.get("issuer") != self._issuer:
            raise ValueError("what it says about itself names another issuer")
        return check_url(str(found.get("jwks_uri", "")))

    async def _get(self, address: str) -> Any:
        status, value = await ask_json(address, headers=self._headers(address), ca_file=self._ca_file)
        if status != 200:
            raise UnreachableError(f"{address} answered with status {status}")
        return value


def _some(document: Any) -> KeySet:
    found = KeySet(document)
    if not len(found):
        raise ValueError("it has no key that signs")
    return found


class FileKeys:
    """The keys in a file, read again when it changes. What cannot be read leaves no keys."""

    def __init__(self, path: Path, read: Callable[[bytes], KeySet] | None = None) -> None:
        self.version = 0
        self._path = path
        self._read = read or (lambda data: KeySet(json.loads(data)))
        self._stamp: tuple[int, int, int] | None = None
        self._keys: KeySet | None = None

    def current(self) -> KeySet:
        stamp = file_stamp(self._path)
        if stamp != self._stamp or stamp is None:
            self._stamp, self.version, self._keys = stamp, self.version + 1, None
            self._keys = self._load()
        if self._keys is None:
            raise KeysUnavailableError(f"the keys in {self._path} cannot be read")
        return self._keys

    async def renew(self) -> bool:
        return False

    async def follow(self) -> None:
        await asyncio.Event().wait()

    def _load(self) -> KeySet | None:
        try:
            return self._read(read_bounded(self._path))
        except (OSError, ValueError, RecursionError) as error:
            log.warning("a file of keys cannot be read", path=str(self._path), error=str(error))
            return None


def read_bounded(path: Path) -> bytes:
    """Return what a file has. Raises OSError, and ValueError for a file that is too large."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ValueError(f"it has more than {MAX_FILE} bytes")
    return data


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file does; None where it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
