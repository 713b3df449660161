"""What one sink sees of a log: from its position on, with what the store has already."""

from __future__ import annotations

from pathlib import Path

from proxy.audit.local_log_files import DaemonLog, RunLog
from proxy.audit.sink_sources import left_for_sink, own_source, register
from tests.support.trail_fixture import event


async def test_a_sink_reads_from_its_position_with_what_the_store_has(tmp_path: Path) -> None:
    log = DaemonLog(tmp_path)
    register(log, {"a": 1000, "b": 1000})
    for number in range(4):
        await log.record(event(number))
    log.discard(3, {})
    first, second = own_source("a", log), own_source("b", log)
    assert [entry.seq for entry in first.read(10)] == [1, 2, 3, 4]
    assert [entry.writer for entry in first.read(1)] == [log.head.writer]
    first.taken(2, {})
    assert [entry.seq for entry in first.read(10)] == [3, 4]
    assert [entry.seq for entry in second.read(10)] == [1, 2, 3, 4]
    for one in (first, second):
        one.close()
    log.close()


async def test_a_sink_that_is_none_of_this_log_reads_nothing(tmp_path: Path) -> None:
    log = DaemonLog(tmp_path)
    await log.record(event(1))
    source = own_source("a", log)
    assert source.read(10) == ()
    source.close()
    log.close()


async def test_a_log_is_left_behind_only_once_its_process_is_gone_and_only_for_its_sinks(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    register(log, {"a": 1000})
    await log.record(event(1))
    with left_for_sink("a", log.path) as source:
        assert source is None
    log.close()
    with left_for_sink("b", log.path) as source:
        assert source is None
    with left_for_sink("a", log.path) as source:
        assert source is not None
        assert [entry.seq for entry in source.read(10)] == [1]
        source.note("down")
        source.taken(1, {})
        assert source.read(10) == []
