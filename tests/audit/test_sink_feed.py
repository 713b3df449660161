"""Sinks are fed from the log: each at its own pace, once at the end, and nobody waits for one that is away."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from proxy.audit import log_thread
from proxy.audit import sink_feed as module
from proxy.audit.backlog import read_backlog, read_sinks
from proxy.audit.local_log import LocalLog
from proxy.audit.local_log_files import DaemonLog, RunLog
from proxy.audit.sink_feed import FeedRoute, SinkFeed, SinkPlan, open_feed
from proxy.audit.sink_sources import forget_others, own_source, register
from proxy.core.event import LogEntry, Written
from proxy.core.model import AuditEvent
from tests.support.timeouts import PATIENCE
from tests.support.trail_fixture import event


class MemorySink:
    """A sink that knows events by id, and fails in ways to choose."""

    def __init__(self, batch: int = 10, linger: float = 0.0) -> None:
        self.batch, self.linger = batch, linger
        self.events: dict[str, str] = {}
        self.writes: list[int] = []
        self.before: list[Exception] = []
        self.after: list[Exception] = []
        self.poison: set[str] = set()
        self.hangs = False
        self.closed = 0

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        if self.hangs:
            await asyncio.Event().wait()
        if self.before:
            raise self.before.pop()
        ids = [json.loads(entry.body)["event_id"] for entry in entries]
        bad = {number: "refused" for number, one in enumerate(ids) if one in self.poison}
        self.events |= {one: entry.body for one, entry in zip(ids, entries, strict=True) if one not in self.poison}
        self.writes.append(len(entries))
        if self.after:
            raise self.after.pop()
        return Written(len(entries) - len(bad), bad)

    async def close(self) -> None:
        self.closed += 1


def plan(sink: MemorySink, name: str = "mem", keeps: int | None = 1000) -> SinkPlan:
    return SinkPlan(name, keeps, lambda: sink)


def feed(tmp_path: Path, sink: MemorySink, log: LocalLog | None, told: list[AuditEvent] | None = None) -> SinkFeed:
    made = SinkFeed(plan(sink), FeedRoute(tmp_path), None if told is None else told.append)
    if log is not None:
        register(log, {"mem": 1000})
        made.own = own_source("mem", log)
    return made


def store_takes(log: LocalLog, last: int) -> None:
    log.discard(last, {})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_a_sink_gets_every_event_in_batches_of_its_size(tmp_path: Path) -> None:
    log, sink = DaemonLog(tmp_path), MemorySink()
    one = feed(tmp_path, sink, log)
    for number in range(25):
        log.record_later(event(number))
    await log.record(event(25))
    while await one.round():
        pass
    assert (sink.writes, len(sink.events)) == ([10, 10, 6], 26)
    assert (await one.round(), sink.writes) == (False, [10, 10, 6])
    await one.close()
    log.close()


async def test_an_answer_that_was_lost_gives_the_batch_again_and_each_event_once(tmp_path: Path) -> None:
    log, sink = DaemonLog(tmp_path), MemorySink()
    one = feed(tmp_path, sink, log)
    await log.record(event(1))
    sink.after = [ConnectionError("lost")]
    with pytest.raises(ConnectionError):
        await one.round()
    store_takes(log, 1)
    assert await one.round() is False
    assert (sink.writes, list(sink.events)) == ([1, 1], ["e00001"])
    await one.close()
    log.close()


async def test_a_batch_that_is_not_full_lingers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    log, sink = DaemonLog(tmp_path), MemorySink(batch=3, linger=60)
    one = feed(tmp_path, sink, log)
    await log.record(event(1))
    assert (await one.round(), sink.writes) == (False, [])
    now[0] += 61
    assert (await one.round(), sink.writes) == (False, [1])
    for number in (2, 3, 4):
        await log.record(event(number))
    assert (await one.round(), sink.writes) == (True, [1, 3])
    await one.close()
    log.close()


async def test_what_a_sink_refuses_is_told_in_the_trail(tmp_path: Path) -> None:
    log, sink, told = DaemonLog(tmp_path), MemorySink(), list[AuditEvent]()
    one = feed(tmp_path, sink, log, told)
    sink.poison = {"e00002"}
    for number in (1, 2, 3):
        await log.record(event(number))
    await one.round()
    assert list(sink.events) == ["e00001", "e00003"]
    (gap,) = told
    assert gap.kind == "sink_gap"
    assert gap.detail == {"sink": "mem", "count": 1, "first_id": "e00002", "last_id": "e00002", "why": "refused"}
    await one.round()
    assert len(told) == 1, "once"
    await one.close()
    log.close()


async def test_a_sink_that_was_away_too_long_has_a_gap_that_status_and_trail_tell(tmp_path: Path) -> None:
    log, sink, told = DaemonLog(tmp_path), MemorySink(batch=100), list[AuditEvent]()
    one = feed(tmp_path, sink, log, told)
    register(log, {"mem": 5})
    for number in range(1, 21):
        await log.record(event(number))
    store_takes(log, 20)
    (state,) = read_backlog(tmp_path, time.time()).sinks
    assert (state.lost, state.events, state.required) == (15, 5, False)
    assert [(gap.count, gap.first_id, gap.last_id) for gap in state.gaps] == [(15, "e00001", "e00015")]
    await one.round()
    assert list(sink.events) == [f"e{number:05}" for number in range(16, 21)]
    assert [gap.detail["count"] for gap in told] == [15]
    await one.close()
    log.close()


def test_a_sink_that_hangs_or_fails_holds_up_neither_the_log_nor_another_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_thread, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(log_thread, "LAST_SECONDS", 0.2)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    log, good, bad, hung = DaemonLog(tmp_path), MemorySink(), MemorySink(), MemorySink()
    bad.before = [ConnectionError(f"down {number}") for number in range(10_000)]
    hung.hangs = True
    plans = [plan(good, "good"), plan(bad, "bad"), plan(hung, "hung")]
    thread = open_feed(plans, FeedRoute(tmp_path), log, adopts_all=True)
    assert thread is not None
    for number in range(50):
        log.record_later(event(number))
    until(lambda: len(good.events) == 50)
    until(lambda: any(one.name == "bad" and one.problem for one in read_sinks(tmp_path, time.time())))
    store_takes(log, 50)
    bad.before.clear()
    until(lambda: len(bad.events) == 50)
    thread.stop()
    log.close()
    hung.hangs = False
    thread.finish()
    assert len(hung.events) == 50, "what is left is given at the end"
    assert (good.closed, bad.closed, hung.closed) == (1, 1, 1)
    assert [one.events for one in read_sinks(tmp_path, time.time())] == [0, 0, 0]


async def test_what_another_process_left_is_fed_by_the_next(tmp_path: Path) -> None:
    left = RunLog(tmp_path)
    register(left, {"mem": 1000})
    for number in range(3):
        await left.record(event(number))
    store_takes(left, 3)
    log, sink = DaemonLog(tmp_path), MemorySink()
    one = feed(tmp_path, sink, log)
    await one.move_left()
    assert sink.events == {}, "its process still holds it"
    left.close()
    await one.move_left()
    assert len(sink.events) == 3
    await one.close()
    log.close()


async def test_a_sink_that_is_in_the_settings_no_more_keeps_nothing(tmp_path: Path) -> None:
    left = RunLog(tmp_path)
    register(left, {"gone": None, "mem": None})
    await left.record(event(1))
    store_takes(left, 1)
    left.close()
    assert forget_others(left.path, ["mem", "gone"]) == []
    assert forget_others(left.path, ["mem"]) == ["gone"]
    log = DaemonLog(tmp_path)
    register(log, {"gone": 1000})
    assert open_feed((), FeedRoute(tmp_path), log, adopts_all=True) is None
    assert read_sinks(tmp_path, 0) == ()
    assert read_backlog(tmp_path, 0).events == 0
    log.close()


CHILD = """
import asyncio, json, os, pathlib, sys
from proxy.core.event import Written
from proxy.audit.local_log_files import DaemonLog
from proxy.audit.sink_feed import FeedRoute, SinkPlan, open_feed
from tests.support.trail_fixture import event

class FileSink:
    batch, linger = 7, 0.0
    async def write(self, entries):
        with open(sys.argv[2], "a") as file:
            for entry in entries:
                file.write(json.loads(entry.body)["event_id"] + "\\n")
        return Written(len(entries))
    async def close(self): pass

folder = pathlib.Path(sys.argv[1])
log = DaemonLog(folder)
feed = open_feed([SinkPlan("file", 1000, FileSink)], FeedRoute(folder), log, adopts_all=True)
first = log.head.seq
async def work():
    for number in range(first, first + 200):
        await log.record(event(number))
        if number % 20 == 19:
            await asyncio.to_thread(log.discard, number, {})
            print(number, flush=True)
asyncio.run(work())
feed.stop(); log.close(); feed.finish()
"""


def test_after_a_sigkill_the_next_start_goes_on_and_misses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", CHILD, str(tmp_path / "state"), str(out)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())})
    assert child.stdout is not None
    for _ in range(3):
        assert child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    found = out.read_text().split()
    assert sorted(set(found)) == [f"e{number:05}" for number in range(len(set(found)))]
    assert len(set(found)) > 200
