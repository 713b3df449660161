"""Events go from the logs to the store: each once, none lost, whatever breaks in between."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.audit import log_thread
from proxy.audit import shipper as module
from proxy.audit.event_store import Events
from proxy.audit.local_log import LOG_FILE
from proxy.audit.local_log_files import DaemonLog, RunLog, log_states, worker_log
from proxy.audit.open_events import open_events
from proxy.audit.ship_sources import LogSource, OwnSource
from proxy.audit.shipper import Route, Shipper, ShippingThread
from proxy.core.event import Filter, LogEntry, Written
from proxy.core.model import Finding
from proxy.errors import AuditUnavailableError, StoreUnavailableError
from proxy.store.sqlite import STORE_FILE
from tests.support.timeouts import PATIENCE
from tests.support.trail_fixture import event, move, signed, signer, verified, write

Where = tuple[str | None, Path]


class Flaky:
    """A store that fails in ways to choose, before and after it has written."""

    def __init__(self, store: Events) -> None:
        self.store = store
        self.database = store.database
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.writes: list[int] = []
        self.fails_at = -1

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        if len(self.writes) == self.fails_at - 1:
            self.fails_at = -1
            raise StoreUnavailableError("down for once")
        if self.before:
            raise self.before.pop()
        written = await self.store.write(entries)
        self.writes.append(len(entries))
        if self.after:
            raise self.after.pop()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


async def stored(store: Events) -> list[str]:
    return [json.loads(entry.body)["event_id"] for _, entry in await store.events(Filter(), limit=100_000)]


def names(numbers: Sequence[int]) -> list[str]:
    return [f"e{number:05}" for number in numbers]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[DaemonLog]:
    opened = DaemonLog(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def own(log: DaemonLog) -> Iterator[OwnSource]:
    source = OwnSource(log, "embedded")
    yield source
    source.connection.close()


def shipper(tmp_path: Path, store: Any, own: OwnSource | None = None, **route: Any) -> Shipper:
    return Shipper(Route(tmp_path, "embedded", **route), store, signer(tmp_path), own)


def spoil(log: DaemonLog, body: str, *numbers: int) -> None:
    """Damage events on disk, and have them forgotten in memory, as after a restart."""
    connection = apsw.Connection(str(log.path))
    connection.set_busy_timeout(60_000)
    connection.executemany("UPDATE events SET body = ? WHERE seq = ?", [(body, number) for number in numbers])
    connection.close()
    assert log.recent is not None
    log.recent.drop(log.head.seq)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_batch_is_moved_in_order_and_leaves_the_log(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events
) -> None:
    for number in range(5):
        await log.record(event(number))
    assert await shipper(tmp_path, events, own).round() == 5
    assert await stored(events) == names(range(5))
    state = log_states(tmp_path)[log.path]
    assert (state.backlog, state.oldest, state.moved) == (0, None, 5)
    assert state.moved_at is not None


ODD: list[dict[str, Any]] = [
    {"arguments": {"a": [1, None, 1e-7, "\0"]}, "rules": ("r",), "jsonrpc_id": 7},
    {"arguments": "x" * (1 << 17), "session": "s" * 300},
    {"detail": {"proposal_id": "p"}, "agent": "\ud800", "jsonrpc_id": 1 << 70},
    {"kind": "completed", "redactions": (Finding("d", "$.a", "f"),), "is_error": False, "total_ms": 1.5},
]


async def test_what_is_moved_from_memory_is_what_the_file_holds(
    tmp_path: Path, log: DaemonLog, own: OwnSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, fields in enumerate(ODD):
        await log.record(event(number, **fields))
    read = LogSource.read(own, 10)
    with monkeypatch.context() as patched:
        patched.setattr(LogSource, "read", None)
        fresh = own.read(10)
    assert [entry[:4] for entry in fresh] == [entry[:4] for entry in read]
    assert any(entry.columns for entry in fresh)
    rows = []
    for number, entries in enumerate((fresh, read)):
        store = open_events(None, tmp_path / f"{number}")
        assert await store.write(entries) == Written(len(ODD))
        await store.close()
        connection = apsw.Connection(str(tmp_path / f"{number}" / STORE_FILE))
        rows.append(connection.execute("SELECT * FROM events").fetchall())
        connection.close()
    assert rows[0] == rows[1]
    assert await shipper(tmp_path, open_events(None, tmp_path), own).round() == len(ODD)
    assert own.read(10) == []


async def test_what_memory_has_no_room_for_is_read_from_the_file(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.audit.ship_sources.RECENT_EVENTS", 3)
    monkeypatch.setattr(module, "BATCH", 4)
    for number in range(10):
        await log.record(event(number))
    ship = shipper(tmp_path, events, own)
    while await ship.round():
        pass
    assert await stored(events) == names(range(10))
    assert log_states(tmp_path)[log.path].backlog == 0


async def test_an_event_stays_in_the_log_until_the_store_has_it(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events
) -> None:
    await log.record(event(1))
    flaky = Flaky(events)
    flaky.before = [StoreUnavailableError("down")]
    ship = shipper(tmp_path, flaky, own)
    with pytest.raises(StoreUnavailableError):
        await ship.round()
    assert log_states(tmp_path)[log.path].backlog == 1
    assert await ship.round() == 1
    assert await stored(events) == names([1])


async def test_what_was_stored_before_a_connection_broke_is_stored_once(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events
) -> None:
    for number in range(3):
        await log.record(event(number))
    flaky = Flaky(events)
    flaky.after = [StoreUnavailableError("cut after commit")]
    ship = shipper(tmp_path, flaky, own)
    with pytest.raises(StoreUnavailableError):
        await ship.round()
    await log.record(event(3))
    assert await ship.round() == 4
    assert await stored(events) == names(range(4))
    assert (await verified(tmp_path, events)).problems == []


async def test_a_large_backlog_goes_in_batches(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 10)
    for number in range(35):
        log.record_later(event(number))
    await log.record(event(35))
    flaky, stop = Flaky(events), asyncio.Event()
    running = asyncio.create_task(shipper(tmp_path, flaky, own).run(stop))
    await until(lambda: sum(flaky.writes) == 36)
    stop.set()
    await asyncio.wait_for(running, PATIENCE)
    assert sorted(flaky.writes) == [6, 10, 10, 10]
    assert await stored(events) == names(range(36))


async def test_pages_follow_each_other_and_what_fails_on_the_way_is_moved_the_next_time(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    monkeypatch.setattr(events, "parallel_batches", 1)
    for number in range(19):
        log.record_later(event(number))
    await log.record(event(19))
    spoil(log, "no event", 2, 5, 20)
    flaky = Flaky(events)
    flaky.fails_at = 4
    ship = shipper(tmp_path, flaky, own)
    with pytest.raises(StoreUnavailableError):
        await ship.round()
    state = log_states(tmp_path)[log.path]
    assert (state.moved, state.rejected) == (9, 2)
    assert await ship.round() == 11
    state = log_states(tmp_path)[log.path]
    assert (state.backlog, state.rejected, flaky.writes) == (0, 3, [3] * 6 + [2])
    assert await stored(events) == names([number for number in range(20) if number not in (1, 4, 19)])
    monkeypatch.setattr(module, "MOST", 6)
    for number in range(20, 40):
        log.record_later(event(number))
    await log.record(event(40))
    assert await ship.round() == 9, "then a look is taken at what else there is to do"


async def test_batches_that_are_written_at_once_leave_the_log_together(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(events, "parallel_batches", 3)
    for number in range(5):
        await log.record(event(number))
    spoil(log, "no event\x1e", 4)
    flaky = Flaky(events)
    flaky.after = [StoreUnavailableError("cut after one of them was written")]
    ship = shipper(tmp_path, flaky, own)
    with pytest.raises(StoreUnavailableError):
        await ship.round()
    assert log_states(tmp_path)[log.path].backlog == 5
    assert await ship.round() == 5
    state = log_states(tmp_path)[log.path]
    assert (state.backlog, state.rejected) == (0, 1)
    assert await stored(events) == names([0, 1, 2, 4])


async def test_an_outage_is_noted_tried_less_and_less_and_gets_over(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_thread, "FIRST_PAUSE", 0.01)
    await log.record(event(1))
    flaky, stop = Flaky(events), asyncio.Event()
    flaky.before = [StoreUnavailableError("the store is down"), RuntimeError("a fault"), StoreUnavailableError("down")]
    ship = shipper(tmp_path, flaky, own)
    running = asyncio.create_task(ship.run(stop))
    await until(lambda: log_states(tmp_path)[log.path].problem is not None)
    await until(lambda: flaky.writes == [1] and log_states(tmp_path)[log.path].problem is None)
    stop.set()
    await asyncio.wait_for(running, PATIENCE)
    assert await stored(events) == names([1])


def test_pauses_grow_to_a_bound_and_are_never_the_same(tmp_path: Path) -> None:
    ship = shipper(tmp_path, None)
    pauses = [ship._failed(RuntimeError("x")) for _ in range(12)]
    assert 0.25 <= pauses[0] <= 0.5
    assert all(15.0 <= pause <= 30.0 for pause in pauses[-4:])
    assert len(set(pauses)) == len(pauses)
    ship._worked()
    assert ship._failed(RuntimeError("y")) <= 0.5


@pytest.mark.parametrize("body", ["nonsense", "{}", '{"event_id": "x", "kind": "k", "time": -1}', "[" * 5000])
async def test_poison_is_set_aside_and_holds_nothing_up(
    body: str, tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events
) -> None:
    for number in range(1, 6):
        await log.record(event(number))
    spoil(log, body, 3)
    assert await shipper(tmp_path, events, own).round() == 5
    assert await stored(events) == names([1, 2, 4, 5])
    state = log_states(tmp_path)[log.path]
    assert (state.rejected, state.backlog) == (1, 0)
    said = signed(tmp_path)[log.head.writer]
    assert set(said.rejected) == {3}


async def test_a_rejected_event_is_no_hole_in_the_chain(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events
) -> None:
    """The log still has it; and where the log is not at hand, the signature speaks for it."""
    from proxy.audit.chain_reader import StoreChains
    from proxy.audit.verify import Evidence, verify

    for number in range(1, 4):
        await log.record(event(number, kind="" if number == 2 else "decided"))
    await shipper(tmp_path, events, own).round()
    assert await stored(events) == names([1, 3])
    assert (await verified(tmp_path, events)).problems == []
    report = await verify(StoreChains(events), Evidence(signed(tmp_path)))
    assert (report.problems, report.writers[0].set_aside) == ([], 1)


class TestLogsThatOthersLeft:
    HOLDER = """
import asyncio, os, sys, time
from pathlib import Path
from proxy.core.model import AuditEvent
from proxy.audit.local_log_files import RunLog

async def main():
    log = RunLog(Path(sys.argv[1]))
    for number in range(10_000):
        await log.record(AuditEvent(event_id=f"k{number:05}", kind="decided", time=1000.0 + number))
        os.write(1, f"{number}\\n".encode())

asyncio.run(main())
"""

    async def test_nothing_that_a_killed_process_had_acknowledged_is_lost(self, tmp_path: Path, events: Events) -> None:
        command = [sys.executable, "-c", self.HOLDER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            acknowledged = [int(holder.stdout.readline()) for _ in range(20)]
            assert await move(tmp_path, events) == 0  # it lives: its log is its own
            holder.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in holder.stdout.read().splitlines()]
        assert await move(tmp_path, events) >= len(acknowledged)
        assert {f"k{number:05}" for number in acknowledged} <= set(await stored(events))
        report = await verified(tmp_path, events)
        assert (report.problems, report.unsigned) == ([], [])
        assert report.writers[0].proven == report.checked

    async def test_a_log_meant_for_another_store_is_left(self, tmp_path: Path, events: Events) -> None:
        run = RunLog(tmp_path)
        source = OwnSource(run, "postgresql://elsewhere/db")
        await run.record(event(1))
        source.connection.close()
        run.close()
        assert await move(tmp_path, events) == 0
        assert await shipper(tmp_path, events, adopts_all=True).move_left() == 1

    async def test_a_file_that_is_no_log_holds_nothing_up(self, tmp_path: Path, events: Events) -> None:
        write(tmp_path, [1])
        (tmp_path / "log" / "a.db").write_bytes(b"garbage " * 500)
        assert await move(tmp_path, events) == 1

    async def test_the_log_of_a_worker_that_is_about_to_be_replaced_is_left_to_the_next(
        self, tmp_path: Path, events: Events
    ) -> None:
        gone = DaemonLog(tmp_path, worker=2)
        await gone.record(event(1))
        gone.close()
        spared = frozenset({worker_log(tmp_path, 2)})
        assert await shipper(tmp_path, events, spared=spared).move_left() == 0
        assert await shipper(tmp_path, events).move_left() == 1

    async def test_two_shippers_at_once_store_each_event_once(self, where: Where) -> None:
        url, folder = where
        for slot in range(3):
            log = RunLog(folder)
            for number in range(50):
                log.record_later(event(100 * slot + number))
            log.close()
        stores = [open_events(url, folder) for _ in range(3)]
        moved = await asyncio.gather(*(move(folder, store) for store in stores))
        assert sum(moved) == 150
        assert len(await stored(stores[0])) == 150
        for store in stores:
            await store.close()


async def test_a_full_log_takes_events_again_once_it_was_emptied(tmp_path: Path, events: Events) -> None:
    log = DaemonLog(tmp_path, max_bytes=200_000)
    source = OwnSource(log, "embedded")
    big = {"arguments": {"x": "y" * 3000}}
    taken = await fill(log, **big)
    assert taken > 10
    # On a log with no room left, what discards must not need any.
    assert await asyncio.to_thread(lambda: asyncio.run(_round(tmp_path, source))) == taken
    for number in range(taken, 2 * taken - 5):
        await log.record(event(number, **big))
    source.connection.close()
    log.close()


async def fill(log: DaemonLog, **fields: Any) -> int:
    """Record until the log refuses; return how many events it took."""
    for number in range(1000):
        try:
            await log.record(event(number, **fields))
        except AuditUnavailableError:
            return number
    raise AssertionError("the log has no bound")


async def _round(tmp_path: Path, source: OwnSource) -> int:
    store = open_events(None, tmp_path)
    try:
        return await shipper(tmp_path, store, source).round()
    finally:
        await store.close()


async def test_old_events_leave_the_store_where_it_is_ours_to_keep(
    tmp_path: Path, log: DaemonLog, own: OwnSource, events: Events
) -> None:
    import time

    await log.record(event(1, time=time.time() - 10 * 86_400))
    await log.record(event(2, time=time.time()))
    await shipper(tmp_path, events, own).round()
    assert signer(tmp_path).sign("head", [log.head])  # what nobody signed is not deleted
    await shipper(tmp_path, events, own, retention_days=5).round()
    assert await stored(events) == names([2])
    assert (await verified(tmp_path, events)).problems == []


class TestThread:
    def start(self, where: Where, log: DaemonLog) -> ShippingThread:
        url, folder = where
        return ShippingThread(Route(folder, "embedded"), lambda: open_events(url, folder), signer(folder), log)

    async def test_it_moves_what_is_recorded_and_what_is_left_at_the_end(
        self, where: Where, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_thread, "LAST_SECONDS", PATIENCE)
        _, folder = where
        log = DaemonLog(folder)
        thread = self.start(where, log)
        await log.record(event(1))
        await until(lambda: log_states(folder)[log.path].moved == 1)
        await asyncio.to_thread(thread.stop)
        await log.record(event(2))
        log.close()
        await asyncio.to_thread(thread.finish)
        store = open_events(*where)
        assert await stored(store) == names([1, 2])
        await store.close()

    async def test_a_log_that_is_kept_busy_at_the_start_is_moved_once_it_is_not(
        self, where: Where, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_thread, "FIRST_PAUSE", 0.01)
        monkeypatch.setattr(log_thread, "LAST_SECONDS", PATIENCE)
        _, folder = where
        log, tried = DaemonLog(folder), threading.Event()
        await log.record(event(1))
        monkeypatch.setattr("proxy.audit.local_log_sql.BUSY_MS", 10)
        monkeypatch.setattr(module.log, "warning", lambda *_, **__: tried.set())
        other = apsw.Connection(str(log.path))
        other.execute("BEGIN IMMEDIATE")
        thread = self.start(where, log)
        assert await asyncio.to_thread(tried.wait, PATIENCE)
        other.close()
        await until(lambda: log_states(folder)[log.path].moved == 1)
        await asyncio.to_thread(thread.stop)
        log.close()
        await asyncio.to_thread(thread.finish)

    async def test_a_store_that_cannot_be_opened_leaves_everything_in_the_log(
        self, tmp_path: Path, log: DaemonLog
    ) -> None:
        def broken() -> Events:
            raise RuntimeError("no such store")

        thread = ShippingThread(Route(tmp_path, "embedded"), broken, signer(tmp_path), log)
        await log.record(event(1))
        thread.stop()
        thread.finish()
        assert log_states(tmp_path)[tmp_path / LOG_FILE].backlog == 1

    async def test_a_store_that_hangs_does_not_keep_the_process(
        self, tmp_path: Path, log: DaemonLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_thread, "LAST_SECONDS", 0.2)
        asked = threading.Event()

        class Hanging:
            parallel_batches = 1
            proxies_read = False

            @property
            def database(self) -> Hanging:
                return self

            async def fetch(self, *asks: object) -> None:
                asked.set()
                await asyncio.sleep(3600)

            async def close(self) -> None:
                pass

        thread = ShippingThread(Route(tmp_path, "embedded"), Hanging, signer(tmp_path), log)  # type: ignore[arg-type]
        assert await asyncio.to_thread(asked.wait, PATIENCE)
        async with asyncio.timeout(PATIENCE):
            await asyncio.to_thread(thread.stop)
            await asyncio.to_thread(thread.finish)
        assert not thread._thread.is_alive()
