"""Notifications of a shared Postgres: one connection that listens, and reading again whenever one may have been missed.

A notification only says that something changed; what holds is read from the tables. So whoever uses this is right even
where nothing is ever heard: behind a pooler that swallows LISTEN, and while no connection is to be had, `read_again` is
called every second instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import structlog

from proxy.errors import StoreUnavailableError
from proxy.store.postgres import TIMEOUT, connect, is_pooled
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from proxy.store.postgres import Link

log = structlog.get_logger("interlock.listen")
SQL = Queries("listen_postgres")

POLL_SECONDS: Final = 1.0  # between two readings where nothing is heard
SAFETY_SECONDS: Final = 10.0  # between two readings where all is well
PROBE_SECONDS: Final = 10.0  # between two checks that notifications arrive
POOLED_SECONDS: Final = 60.0  # before a pooler is tried again: it may have been taken away
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
GATHER_SECONDS: Final = 0.02  # a storm of notifications is told at most so often
MOST_PAYLOADS: Final = 64  # told one by one; above it, `read_again` is called instead
TURN_SECONDS: Final = 0.5  # between two tries to become the process that listens


class PostgresListener:
    """Listens for one replica. Create it in any process; `run` ends only when cancelled, and raises nothing else.

    `channels` maps each channel to what is called with a notification's payload; the same payload several times in a
    moment is told once. `read_again` is called after every (re)connect and whenever a notification may have been
    missed: read the tables then. `turn` is a file that only one process of the replica can lock: that one listens, and
    in the others `read_again` is called every SAFETY_SECONDS, and within TURN_SECONDS of taking over. A process in
    which it is not `wanted` takes no turn, and has nothing read. Callbacks run on the event loop and must not block;
    what they raise is logged.
    """

    def __init__(
        self,
        url: str,
        channels: Mapping[str, Callable[[str], None]],
        read_again: Callable[[], None],
        *,
        turn: Path | None = None,
        wanted: Callable[[], bool] = lambda: True,
        timeout: float = TIMEOUT,
    ) -> None:
        self._url = url
        self._wanted = wanted
        self._channels = dict(channels)
        self._read_again = read_again
        self._turn = _Turn(turn)
        self._timeout = timeout
        self._probe = f"interlock_probe_{uuid4().hex}"
        self._echo = asyncio.Event()
        self._heard: dict[tuple[str, str], None] = {}
        self._gathering: asyncio.TimerHandle | None = None
        self._read_at = -SAFETY_SECONDS
        self.listening = False  # whether notifications are known to arrive
        self.problem: str | None = None  # why not, where this process should listen

    @property
    def ours(self) -> bool:
        """Whether this process is the one of its replica that listens, or tries to."""
        return self._turn.ours

    async def run(self) -> None:
        """Listen, connect again, and have everything read again in time. Runs until cancelled."""
        try:
            await asyncio.gather(self._listen_forever(), self._read_forever())
        finally:
            if self._gathering is not None:
                self._gathering.cancel()
            self._turn.give_up()

    async def _read_forever(self) -> None:
        while True:
            # Without a turn another process of this replica hears, and says what it heard by the replica's own files.
            every = SAFETY_SECONDS if self.listening or not self._turn.ours else POLL_SECONDS
            told_otherwise = self._turn.waits and not self._wanted()
            if time.monotonic() >= self._read_at + every and not told_otherwise:
                self._read()
            await asyncio.sleep(min(every, POLL_SECONDS))

    def _read(self) -> None:
        self._read_at = time.monotonic()
        _call(self._read_again)

    async def _listen_forever(self) -> None:
        failures = 0
        while True:
            if (self._turn.waits and not self._wanted()) or not self._turn.take():
                await asyncio.sleep(TURN_SECONDS)
                continue
            began = time.monotonic()
            pause = 0.0
            try:
                await self._listen()
            except _PooledError as error:
                self._say(str(error))
                pause = POOLED_SECONDS
            except Exception as error:  # noqa: BLE001  the boundary: nothing here may end a proxy
                self._say(str(error) or type(error).__name__)
            finally:
                self.listening = False
            # One that held for long ended by chance; one that ends at once, again and again, is left alone for longer.
            failures = 0 if time.monotonic() - began > LONGEST_PAUSE else failures + 1
            backoff = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
            # Not all replicas at once where a database comes back.
            await asyncio.sleep(pause or backoff * random.uniform(0.5, 1.0))  # noqa: S311

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("Postgres tells nothing; it is asked every second instead", problem=problem)
        self.problem = problem

    async def _listen(self) -> None:
        """Listen on one connection until it ends. Raises what went wrong."""
        connection = await connect(self._url, self._timeout)
        try:
            if is_pooled(self._url):
                raise _PooledError("a pooler is in between, and LISTEN needs a connection of its own")
            ended = asyncio.Event()
            connection.add_termination_listener(lambda _: ended.set())
            for channel in (*self._channels, self._probe):
                await connection.add_listener(channel, self._hear)
            await self._check(connection)
            if self.problem is not None:
                log.info("Postgres tells of changes again")
            self.listening, self.problem = True, None
            self._read()  # what was changed while nobody listened
            while not await _within(ended, PROBE_SECONDS):
                await self._check(connection)
            raise StoreUnavailableError("the connection that listens was closed")
        finally:
            await _close(connection)

    async def _check(self, connection: Link) -> None:
        """Raise StoreUnavailableError unless a notification to ourselves arrives: a line may be dead without a sign."""
        self._echo.clear()
        await connection.fetchval(SQL["notify_channel"], self._probe, "")
        if not await _within(self._echo, self._timeout):
            raise StoreUnavailableError("notifications do not arrive; something in between swallows them")

    def _hear(self, _connection: Any, _pid: int, channel: str, payload: object) -> None:
        if channel == self._probe:
            self._echo.set()
            return
        if len(self._heard) <= MOST_PAYLOADS:
            self._heard[channel, str(payload)] = None
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._tell)

    def _tell(self) -> None:
        heard, self._heard, self._gathering = self._heard, {}, None
        if len(heard) > MOST_PAYLOADS:
            self._read()
            return
        for channel, payload in heard:
            _call(self._channels[channel], payload)


class _PooledError(StoreUnavailableError):
    """A transaction pooler answers in the server's place."""


class _Turn:
    """Which process of a replica listens: the one that locked a file. The kernel ends a turn with its process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: int | None = None

    @property
    def ours(self) -> bool:
        return self._path is None or self._file is not None

    @property
    def waits(self) -> bool:
        """Whether it is another process's turn, as far as this one knows."""
        return not self.ours

    def take(self) -> bool:
        """Return whether it is this process's turn; it stays so until the process ends."""
        if self._path is None or self._file is not None:
            return True
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            log.warning("cannot tell which process listens", path=str(self._path), error=str(error))
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file = file
        return True

    def give_up(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event comes in time."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _close(connection: Link) -> None:
    try:
        await connection.close(timeout=1.0)
    except Exception:  # noqa: BLE001  it may be broken in any way, and is given up
        connection.terminate()


def _call(callback: Callable[..., None], *given: str) -> None:
    try:
        callback(*given)
    except Exception as error:
        log.exception("what a notification leads to failed", error=str(error))
