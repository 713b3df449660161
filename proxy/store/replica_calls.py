"""What workers share, over every replica of one Postgres: first of the machine's own files, then of the database.

While no other replica is alive, nothing is asked of the database. A thread of its own holds the connection: answers are
matched with calls in places that cannot wait for the event loop, so a look into the database blocks, for ASK_SECONDS at
most, and not again soon after it failed. What is not found is masked by every rule that may apply.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.core.ids import new_id
from proxy.errors import SharedCallsUnavailableError, StoreUnavailableError
from proxy.store.replica_board import ReplicaBoard, claim_key
from proxy.store.resting_database import RestingDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from concurrent.futures import Future
    from pathlib import Path

    from proxy.core.model import Context, InFlightCall, MessageId
    from proxy.store.database import Database
    from proxy.store.shared_calls import SharedCalls

log = structlog.get_logger("interlock.in_flight")

ASK_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 2.0  # after a failure nothing is asked for so long
BEAT_SECONDS: Final = 1.0
LEAVE_SECONDS: Final = 1.0
JOIN_SECONDS: Final = 5.0
SWEEP_EVERY: Final = 60
BUSY_SECONDS: Final = 10.0  # how long after a use a process goes on saying that it is alive
SEEN_SECONDS: Final = 5.0  # of those that say it, for so long it need not be said again
FRESH_SECONDS: Final = 5.0  # a note that is older is of a lead that hangs
NOT_SECONDS: Final = 1.0  # how long it is remembered that a path is no endpoint
MAX_REMEMBERED: Final = 20_000
MAX_QUEUED: Final = 10_000
LEGACY: Final = "sse"


class ReplicaCalls:
    """An `interfaces.SharedCalls` over replicas. Threads may use it. Open it after the fork."""

    def __init__(
        self,
        near: SharedCalls,
        open_database: Callable[[], Database],
        replica: str,
        key: bytes,
        *,
        noted: Path,
        lead: bool = True,
    ) -> None:
        """Begin to look for other replicas.

        The worker with the `lead` writes down in the file `noted` how many processes of others are alive, every second,
        and learns for all of this machine. So at rest one worker asks, and keeps a connection for it.
        """
        self._near = near
        self._noted, self._lead = noted, lead
        self._open_database = open_database
        self._replica, self._key = replica, key
        # Calls that are in the database, or on their way there.
        self._far: OrderedDict[str, Future[None] | None] = OrderedDict()
        self._not: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._to_release: list[bytes] = []
        self._queued = 0
        self._away_until = 0.0
        self._others = 0
        self._held: set[bytes] = set()  # ids that are claimed in the database
        self._used = self._beaten = float("-inf")
        self._loop = asyncio.new_event_loop()
        self.resting = RestingDatabase(self._loop)
        self._closed = threading.Event()
        self._ending = asyncio.Event()
        self._board: ReplicaBoard | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replica-calls", daemon=True)
        self._thread.start()

    @property
    def spans_replicas(self) -> bool:
        """Whether other replicas are alive, as far as this process knows."""
        return self._others > 0

    # Ids in use

    def claim(self, context: Context, message_id: MessageId) -> bool:
        return self._near.claim(context, message_id)

    async def claim_afar(self, context: Context, message_id: MessageId) -> bool:
        """Claim an id among all replicas; return False where another one has it. Raises SharedCallsUnavailableError."""
        if not self._asks:
            raise SharedCallsUnavailableError("what replicas share cannot be asked")
        asked = self._submit(lambda board: self._claim(board, context, message_id))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(asked), ASK_SECONDS * 2)
        except (StoreUnavailableError, TimeoutError) as error:
            raise self._failed(error) from error

    async def _claim(self, board: ReplicaBoard, context: Context, message_id: MessageId) -> bool:
        # What a process claims that is not known to be alive, others take for free.
        if time.monotonic() > self._beaten + SEEN_SECONDS:
            await self._say_alive(board)
        claimed = await board.claim(context, message_id)
        if claimed:
            self._held.add(claim_key(context, message_id))
        return claimed

    def release(self, context: Context, message_id: MessageId) -> None:
        self._near.release(context, message_id)
        if self._others:
            # Together, a moment later: to let go of an id is not urgent.
            self._to_release.append(claim_key(context, message_id))
            if len(self._to_release) == 1:
                self._loop.call_soon_threadsafe(lambda: self._loop.call_later(0.01, self._release_all))

    def _release_all(self) -> None:
        keys, self._to_release = self._to_release, []
        self._held.difference_update(keys)
        self._later(lambda board: board.release(keys))

    # Calls

    def post(self, in_flight: InFlightCall) -> None:
        self._near.post(in_flight)
        if not self._others:
            return
        # As it is now: an answer may close the call before the database's thread comes to it, and whoever then ended
        # it would be told that somebody else had.
        is_open = not in_flight.closed
        # A legacy call's answer may come to another replica at once, and so may the next request with a task's id.
        if in_flight.context.transport == LEGACY or not in_flight.context.session:
            self._remember(in_flight.call_id)
            self._ask(lambda board: board.post(in_flight, is_open=is_open))
        elif (told := self._later(lambda board: board.post(in_flight, is_open=is_open))) is not None:
            self._remember(in_flight.call_id, told)

    def find(self, context: Context, message_id: MessageId, *, near: bool = False) -> InFlightCall | None:
        found = self._near.find(context, message_id)
        if found is not None or near or not self._others:
            return found
        found = self._ask(lambda board: board.find(context, message_id))
        if found is not None:
            self._remember(found.call_id)
        return found

    def of_session(self, context: Context) -> list[InFlightCall]:
        near = self._near.of_session(context)
        if not self._others:
            return near
        known = {call.call_id for call in near}
        far = self._ask(lambda board: board.of_session(context))
        for call in far:
            self._remember(call.call_id)
        return near + [call for call in far if call.call_id not in known]

    def end(self, call_id: str) -> bool:
        near = self._near.end(call_id)
        if call_id not in self._far:
            return near
        posted = self._far[call_id]
        return self._ask(lambda board: _end_posted(board, call_id, posted, near=near))

    def ended(self, call_ids: Iterable[str]) -> set[str]:
        asked = list(call_ids)
        ended = self._near.ended(asked)
        far = [call_id for call_id in asked if self._is_posted(call_id) and call_id not in ended]
        return ended | (self._ask(lambda board: board.ended(far)) if far else set())

    def _is_posted(self, call_id: str) -> bool:
        """Return whether a call is in the database: of one on its way there, the database says that it has ended."""
        if call_id not in self._far:
            return False
        posted = self._far[call_id]
        return posted is None or (posted.done() and not posted.cancelled() and posted.exception() is None)

    # What was learnt of servers

    def add_endpoint(self, server: str, path: str) -> None:
        self._near.add_endpoint(server, path)
        if self._others:
            # At once: the client that reads of the endpoint may send its first message to another replica.
            with contextlib.suppress(SharedCallsUnavailableError):
                self._ask(lambda board: board.learn("legacy", server, path, ""))

    def is_endpoint(self, server: str, path: str) -> bool:
        if self._near.is_endpoint(server, path):
            return True
        try:
            return self._is_known("legacy", server, path)
        except SharedCallsUnavailableError:
            return False

    def add_mcp_endpoint(self, server: str, path: str, agent: str) -> None:
        self._near.add_mcp_endpoint(server, path, agent)
        self._later(lambda board: board.learn("mcp", server, path, agent))

    def is_mcp_endpoint(self, server: str, path: str) -> bool:
        # Facts come every second. To ask for each request that is no call would make the web wait for a database.
        return self._near.is_mcp_endpoint(server, path)

    def own_credential(self, digest: str, owner: str) -> str:
        first = self._near.own_credential(digest, owner)
        self._later(lambda board: board.learn("credential", digest, "", first))
        return first

    def new_credentials(self) -> list[tuple[str, str]]:
        return self._near.new_credentials()

    def close(self) -> None:
        """End the thread, and close what the workers of this machine share."""
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(RuntimeError):  # it ended by itself
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(JOIN_SECONDS)
        self._near.close()

    # The thread

    @property
    def _asks(self) -> bool:
        return time.monotonic() >= self._away_until and self._board is not None

    def _is_known(self, kind: str, name: str, path: str) -> bool:
        if not self._others:
            return False
        key, now = (kind, name, path), time.monotonic()
        if self._not.get(key, 0.0) > now:
            return False
        known = self._ask(lambda board: board.is_known(kind, name, path))
        if not known:
            self._not[key] = now + NOT_SECONDS
            _trim(self._not)
        return known

    def _remember(self, call_id: str, on_its_way: Future[None] | None = None) -> None:
        self._far[call_id] = on_its_way
        _trim(self._far)

    def _ask[T](self, work: Callable[[ReplicaBoard], Coroutine[Any, Any, T]]) -> T:
        """Return what the database says. Blocks. Raises SharedCallsUnavailableError."""
        if not self._asks:
            raise SharedCallsUnavailableError("what replicas share cannot be asked")
        try:
            return self._submit(work).result(ASK_SECONDS)
        except (StoreUnavailableError, TimeoutError) as error:
            raise self._failed(error) from error

    def _later[T](self, work: Callable[[ReplicaBoard], Coroutine[Any, Any, T]]) -> Future[T] | None:
        """Tell the database when it has time, where other replicas are alive; a failure is logged."""
        if not self._others or not self._asks or self._queued >= MAX_QUEUED:
            return None
        self._queued += 1
        told = self._submit(work)
        told.add_done_callback(self._done)
        return told

    def _done(self, told: Future[Any]) -> None:
        self._queued -= 1
        if not told.cancelled() and (error := told.exception()) is not None:
            self._failed(error)

    def _submit[T](self, work: Callable[[ReplicaBoard], Coroutine[Any, Any, T]]) -> Future[T]:
        assert self._board is not None
        self._used = time.monotonic()
        try:
            return asyncio.run_coroutine_threadsafe(work(self._board), self._loop)
        except RuntimeError as error:  # the loop is closed
            raise SharedCallsUnavailableError("this worker is ending") from error

    def _failed(self, error: BaseException) -> SharedCallsUnavailableError:
        self._away_until = time.monotonic() + AWAY_SECONDS
        log.warning("what replicas share cannot be used", error=str(error) or type(error).__name__)
        return SharedCallsUnavailableError(f"what replicas share cannot be used: {error or 'no answer in time'}")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._stay())
        finally:
            self._loop.close()

    async def _stay(self) -> None:
        """Say every second that this process is alive, and learn what others have learnt, until `close`."""
        database = self._open_database()
        board = ReplicaBoard(database, new_id(), self._replica, self._key)
        self.resting.open(database)
        self._board = board
        beats = 0
        try:
            while not self._closed.is_set():
                try:
                    async with self.resting.turn:
                        await self._beat(board, beats)
                except StoreUnavailableError as error:
                    log.debug("other replicas are not seen", error=str(error))
                self._ready.set()
                beats += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), BEAT_SECONDS)
            with contextlib.suppress(StoreUnavailableError, TimeoutError):
                await asyncio.wait_for(board.leave(), LEAVE_SECONDS)
        finally:
            under_way = asyncio.all_tasks() - {asyncio.current_task()}
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await board.close()

    async def _beat(self, board: ReplicaBoard, beats: int) -> None:
        noted = None if self._lead else self._noted_others()
        if self._lead:
            self._others = await self._say_alive(board)
            self._noted.write_text(str(self._others))
        elif noted is None or (noted and self._is_busy()):
            self._others = await self._say_alive(board)
        else:
            self._others = noted
        if self._others and (self._lead or noted is None):
            for kind, name, path, owner in await board.new_facts():
                self._take(kind, name, path, owner)
        if self._lead and beats % SWEEP_EVERY == SWEEP_EVERY - 1:
            await board.sweep()

    async def _say_alive(self, board: ReplicaBoard) -> int:
        others = await board.beat()
        self._beaten = time.monotonic()
        return others

    def _is_busy(self) -> bool:
        return bool(self._held) or time.monotonic() < self._used + BUSY_SECONDS

    def _noted_others(self) -> int | None:
        """Return how many others the lead has seen just now; None where it did not say."""
        try:
            if abs(time.time() - self._noted.stat().st_mtime) > FRESH_SECONDS:
                return None
            return int(self._noted.read_text())
        except (OSError, ValueError):
            return None

    def _take(self, kind: str, name: str, path: str, owner: str) -> None:
        with contextlib.suppress(SharedCallsUnavailableError):
            if kind == "legacy":
                self._near.add_endpoint(name, path)
            elif kind == "mcp":
                self._near.add_mcp_endpoint(name, path, owner)
            elif kind == "credential":
                self._near.own_credential(name, owner)


def _trim(remembered: OrderedDict[Any, Any]) -> None:
    while len(remembered) > MAX_REMEMBERED:
        remembered.popitem(last=False)


async def _end_posted(board: ReplicaBoard, call_id: str, posted: Future[None] | None, *, near: bool) -> bool:
    """End a call once it is in the database: before that, nobody could tell it from one that another has ended."""
    if posted is not None:
        try:
            await asyncio.wrap_future(posted)
        except StoreUnavailableError:
            return near  # it never came there
    return await board.end(call_id)
