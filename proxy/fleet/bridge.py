"""Asks the fleet's store from code that does not await: commands, and the rare changes that a gate makes to pins."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import StoreUnavailableError
from proxy.store.fleet_store import FleetStore
from proxy.store.open_store import open_database

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

SECONDS: Final = 2.0  # as long as a file of pins may be locked: a call that waits for it holds up its worker


class StoreBridge:
    """A thread with an event loop and one connection, made at the first question; a forked process makes its own."""

    def __init__(self, url: str, state_dir: Path, seconds: float = SECONDS) -> None:
        self._url = url
        self._state_dir = state_dir
        self._seconds = seconds
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._store: FleetStore | None = None
        self._alone = threading.Lock()

    def run[T](self, ask: Callable[[FleetStore], Coroutine[Any, Any, T]]) -> T:
        """Return what `ask` returns. Raises what it raises, and StoreUnavailableError where it takes too long."""
        loop = self._started()
        future = asyncio.run_coroutine_threadsafe(self._ask(ask), loop)
        try:
            # A little more than the database's own bound, which says why.
            return future.result(4 * self._seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise StoreUnavailableError("the shared store gives no answer in time") from None

    async def _ask[T](self, ask: Callable[[FleetStore], Coroutine[Any, Any, T]]) -> T:
        if self._store is None:
            self._database = open_database(self._url, self._state_dir, timeout=self._seconds, connections=1)
            self._store = FleetStore(self._database)
        return await ask(self._store)

    def close(self) -> None:
        """End the thread and its connection; the next question makes new ones. Call it before a fork."""
        loop, thread, store = self._loop, self._thread, self._store
        self._loop = self._thread = self._store = None
        if loop is None or thread is None or self._process != os.getpid():
            return
        if store is not None:
            asyncio.run_coroutine_threadsafe(self._database.close(), loop).result(4 * self._seconds)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(4 * self._seconds)
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._alone:
            if self._loop is None or self._process != os.getpid():
                self._process, self._store = os.getpid(), None
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="interlock-fleet", daemon=True)
                self._thread.start()
            return self._loop
