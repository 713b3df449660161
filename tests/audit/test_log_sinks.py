"""Each sink has its position in the log. What it has not taken stays, within its bound; what was let go is noted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from proxy.audit import local_log_sql, log_sinks
from proxy.audit.log_sinks import AWAY, FULL, Gap
from proxy.core.event import LogEntry


@pytest.fixture
def log(tmp_path: Path) -> Iterator[apsw.Connection]:
    connection = local_log_sql.connect(tmp_path / "log.db", 1 << 20)
    yield connection
    connection.close()


def fill(log: apsw.Connection, number: int, size: int = 0) -> None:
    head = local_log_sql.read_head(log)
    first = head.seq + 1
    local_log_sql.add(log, head, [f'{{"event_id":"e{first + one}","pad":"{"x" * size}"}}' for one in range(number)])


def kept(log: apsw.Connection) -> list[int]:
    return [int(row[0]) for row in log.execute("SELECT seq FROM events ORDER BY seq")]


def read(log: apsw.Connection, **options: bool) -> list[int | None]:
    return [entry.seq for entry in local_log_sql.page(log, "w", 0, 1000, **options)]


def taken(log: apsw.Connection, name: str, last: int, refused: dict[int, tuple[str | None, str]] | None = None) -> None:
    with local_log_sql.change(log):
        log_sinks.mark_taken(log, name, last, refused or {}, 1.0)
        local_log_sql.delete_moved(log)


def state(log: apsw.Connection, name: str) -> log_sinks.LogSink:
    return next(one for one in log_sinks.states(log) if one.name == name)


def test_without_sinks_the_log_is_emptied_as_ever(log: apsw.Connection) -> None:
    fill(log, 5)
    local_log_sql.discard(log, 3, {}, 1.0)
    assert kept(log) == [4, 5]


def test_an_event_stays_until_the_store_and_every_sink_have_it(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": 1000, "b": None})
    fill(log, 5)
    taken(log, "a", 4)
    assert kept(log) == [1, 2, 3, 4, 5]
    local_log_sql.discard(log, 5, {}, 1.0)
    assert kept(log) == [1, 2, 3, 4, 5]
    taken(log, "b", 2)
    assert kept(log) == [3, 4, 5]
    taken(log, "b", 5)
    assert kept(log) == [5]
    taken(log, "a", 5)
    assert kept(log) == []
    assert local_log_sql.read_head(log).seq == 5


def test_what_is_kept_for_a_sink_is_no_longer_in_the_log_for_others(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": 1000})
    fill(log, 4)
    local_log_sql.discard(log, 3, {2: "bad"}, 1.0)
    assert read(log) == [4]
    assert read(log, kept=True) == [1, 2, 3, 4]
    assert read(log, rejected=True) == [2, 4]
    assert [seq for seq, _ in local_log_sql.newest(log, 0, None)] == [4]
    found = local_log_sql.read_state(log)
    assert found is not None
    assert (found.backlog, found.oldest) == (1, '{"event_id":"e4","pad":""}')
    assert state(log, "a").backlog == 4


def test_a_sink_that_is_new_begins_with_what_the_store_has_not(log: apsw.Connection) -> None:
    fill(log, 4)
    local_log_sql.discard(log, 3, {}, 1.0)
    log_sinks.add(log, {"a": 10})
    assert log_sinks.position(log, "a") == 3
    taken(log, "a", 4)
    log_sinks.add(log, {"a": None})  # its bound may change, its position stays
    assert (log_sinks.position(log, "a"), state(log, "a").keeps) == (4, None)


def test_past_its_bound_events_are_let_go_and_the_gap_grows_as_one(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": 10, "b": None})
    fill(log, 40)
    local_log_sql.discard(log, 20, {}, 1.0)
    local_log_sql.discard(log, 35, {}, 2.0)
    assert log_sinks.gaps(log, 9) == [(Gap("a", 1, 25, "e1", "e25", AWAY), 2.0)]
    assert (state(log, "a").lost, log_sinks.position(log, "a")) == (25, 25)
    assert kept(log)[0] == 1, "the required one keeps all"
    assert log_sinks.untold(log, "a") == [], "it may still grow"
    taken(log, "a", 30)
    ((key, gap),) = log_sinks.untold(log, "a")
    assert gap.count == 25
    log_sinks.mark_told(log, [key])
    assert log_sinks.untold(log, "a") == []
    local_log_sql.discard(log, 40, {}, 3.0)
    fill(log, 10)
    local_log_sql.discard(log, 50, {}, 3.0)
    assert next(gap for gap, _ in log_sinks.gaps(log, 9)) == Gap("a", 31, 40, "e31", "e40", AWAY)


def test_in_a_log_that_is_half_full_nothing_is_kept_for_a_sink_that_is_not_required(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": 1000})
    fill(log, 60, 10_000)
    local_log_sql.discard(log, 60, {}, 1.0)
    assert kept(log) == []
    assert [gap.reason for gap, _ in log_sinks.gaps(log, 9)] == [FULL]
    fill(log, 60, 10_000)  # there is room again: no call is refused for the sink


def test_a_log_that_a_required_sink_keeps_full_takes_no_more(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": None})
    fill(log, 60, 10_000)
    local_log_sql.discard(log, 60, {}, 1.0)
    assert len(kept(log)) == 60
    with pytest.raises(apsw.FullError):
        fill(log, 60, 10_000)


def test_what_a_sink_refuses_is_a_gap_of_its_own(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": 1000})
    fill(log, 5)
    taken(log, "a", 4, {2: ("e2", "too large"), 3: (None, "too large")})
    assert [gap for gap, _ in log_sinks.gaps(log, 9)] == [Gap("a", 2, 3, "e2", None, "too large")]
    assert state(log, "a").lost == 2
    assert log_sinks.position(log, "a") == 4


def test_a_position_never_goes_back(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": 1000})
    fill(log, 5)
    taken(log, "a", 4)
    taken(log, "a", 2)
    assert log_sinks.position(log, "a") == 4


def test_a_sink_that_was_removed_keeps_nothing(log: apsw.Connection) -> None:
    log_sinks.add(log, {"a": None, "b": 1000})
    fill(log, 5)
    local_log_sql.discard(log, 5, {}, 1.0)
    taken(log, "b", 5)
    assert log_sinks.remove_others(log, ["b"]) == ["a"]
    local_log_sql.delete_moved(log)
    assert kept(log) == []


def test_a_log_of_an_older_version_gets_the_tables_when_it_is_opened_to_write(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = local_log_sql.connect(path, 1 << 20)
    fill(connection, 3)
    connection.execute("DROP TABLE sinks; DROP TABLE sink_gaps")
    connection.close()
    reader = local_log_sql.connect_reader(path)
    assert not log_sinks.has_sinks(reader)
    assert (log_sinks.states(reader), log_sinks.gaps(reader, 9)) == ([], [])
    assert [entry.seq for entry in local_log_sql.page(reader, "w", 0, 10)] == [1, 2, 3]
    reader.close()
    again = local_log_sql.connect(path, 1 << 20)
    assert log_sinks.has_sinks(again)
    assert [one.body for one in local_log_sql.page(again, "w", 0, 1)] == [LogEntry('{"event_id":"e1","pad":""}').body]
    local_log_sql.discard(again, 3, {}, 1.0)
    again.close()
