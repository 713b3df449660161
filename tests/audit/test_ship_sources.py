"""Logs to be emptied: one's own, and those that nobody writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit import local_log_sql, ship_sources
from proxy.audit.local_log import LOG_FILE
from proxy.audit.local_log_files import DaemonLog, log_states, open_reader, take_file
from proxy.audit.ship_sources import OwnSource, RecentEvents, left_behind, others
from proxy.core.event import LogEntry
from proxy.errors import AuditUnavailableError
from tests.support.trail_fixture import event, write


async def test_ones_own_log_is_emptied_by_its_writer(tmp_path: Path) -> None:
    log = DaemonLog(tmp_path)
    source = OwnSource(log, "embedded")
    await log.record(event(1))
    await log.record(event(2))
    assert source.head() == log.head
    assert [entry.seq for entry in source.read(1)] == [1]
    source.discard(1, {})
    assert [entry.seq for entry in source.read(10)] == [2]
    source.note("down")
    assert log_states(tmp_path)[log.path].problem == "down"
    source.note(None)
    assert log_states(tmp_path)[log.path].problem is None
    log.close()
    with pytest.raises(AuditUnavailableError, match="closed"):
        source.discard(2, {})
    source.connection.close()


def test_a_log_that_is_written_is_not_taken(tmp_path: Path) -> None:
    log = DaemonLog(tmp_path)
    log.record_later(event(1))
    with left_behind(log.path, "embedded", 1.0, any_destination=True) as source:
        assert source is None
    log.close()
    with left_behind(log.path, "embedded", 1.0, any_destination=True) as source:
        assert source is not None
        assert take_file(log.path) is None
        source.discard(1, {})
    with left_behind(log.path, "embedded", 1.0, any_destination=True) as source:
        assert source is None  # it is empty


@pytest.mark.parametrize(("meant", "taken"), [("embedded", True), (None, True), ("postgresql://x/y", False)])
def test_a_log_goes_where_it_was_meant_to(meant: str | None, taken: bool, tmp_path: Path) -> None:
    write(tmp_path, [1])
    path = tmp_path / LOG_FILE
    if meant is not None:
        with open_reader(path) as connection:
            local_log_sql.set_destination(connection, meant)
    with left_behind(path, "embedded", 1.0, any_destination=False) as source:
        assert (source is not None) is taken


def test_the_others_are_all_but_ones_own(tmp_path: Path) -> None:
    write(tmp_path, [1])
    assert others(tmp_path, None) == [tmp_path / LOG_FILE]
    assert others(tmp_path, tmp_path / LOG_FILE) == []


def some(first: int, last: int, size: int = 1) -> list[LogEntry]:
    return [LogEntry("x" * size, "w", seq, "0") for seq in range(first, last + 1)]


def numbers(kept: RecentEvents, after: int, limit: int = 100) -> list[int | None] | None:
    found = kept.after(after, limit)
    return None if found is None else [entry.seq for entry in found]


def test_what_comes_after_a_number_is_given_where_it_is_kept() -> None:
    kept = RecentEvents()
    assert numbers(kept, 0) is None
    kept.add(some(5, 7), 5)
    kept.add(some(8, 9), 8)
    assert numbers(kept, 4) == [5, 6, 7, 8, 9]
    assert numbers(kept, 6, limit=2) == [7, 8]
    assert [numbers(kept, 3), numbers(kept, 9), numbers(kept, 20)] == [None, None, None]
    kept.drop(6)
    assert numbers(kept, 5) is None
    assert numbers(kept, 6) == [7, 8, 9]
    kept.drop(99)
    kept.add(some(10, 10), 10)
    assert numbers(kept, 9) == [10]


def test_a_gap_is_the_end_of_what_was_before() -> None:
    kept = RecentEvents()
    kept.add(some(1, 3), 1)
    kept.add(some(5, 6), 5)
    assert numbers(kept, 2) is None
    assert numbers(kept, 4) == [5, 6]


@pytest.mark.parametrize(("bound", "size"), [("RECENT_EVENTS", 1), ("RECENT_CHARACTERS", 100)])
def test_the_oldest_go_where_nobody_comes_for_them(bound: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ship_sources, bound, 3 * size)
    kept = RecentEvents()
    for seq in range(1, 11):
        kept.add(some(seq, seq, size), seq)
    assert numbers(kept, 6) is None
    assert numbers(kept, 7) == [8, 9, 10]
    kept.add(some(11, 30, size), 11)
    assert numbers(kept, 27) == [28, 29, 30]
