"""The tables of a log: numbered, chained, and gone on with whoever wrote before."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from proxy.audit import local_log_sql
from proxy.core.event import link, start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.fixture
def table(path: Path) -> Iterator[apsw.Connection]:
    with contextlib.closing(local_log_sql.connect(path, 1 << 20)) as connection:
        yield connection


def add(table: apsw.Connection, *bodies: str) -> None:
    local_log_sql.add(table, local_log_sql.read_head(table), bodies)


def state(table: apsw.Connection) -> local_log_sql.LogState:
    found = local_log_sql.read_state(table)
    assert found is not None
    return found


def test_events_are_numbered_and_linked_from_the_writers_start(table: apsw.Connection) -> None:
    add(table, "a", "b")
    add(table, "c")
    writer = state(table).head.writer
    first = link(start(writer).hash, 1, "a")
    second = link(first, 2, "b")
    third = link(second, 3, "c")
    found = local_log_sql.page(table, writer, 0, 10)
    assert [(one.seq, one.body, one.chain) for one in found] == [(1, "a", first), (2, "b", second), (3, "c", third)]
    assert (state(table).head.seq, state(table).head.hash, state(table).backlog) == (3, third, 3)


def test_the_chain_goes_on_after_everything_was_moved(table: apsw.Connection) -> None:
    add(table, "a", "b")
    before = state(table).head
    local_log_sql.discard(table, 2, {}, 5.0)
    assert (state(table).head, state(table).backlog, state(table).moved_at) == (before, 0, 5.0)
    add(table, "c")
    (entry,) = local_log_sql.page(table, before.writer, 0, 10)
    assert (entry.seq, entry.chain) == (3, link(before.hash, 3, "c"))


@pytest.mark.parametrize("count", [1, 3, 4, 5, 85, 512])
def test_a_batch_of_any_size_is_written_whole(count: int, table: apsw.Connection) -> None:
    add(table, *map(str, range(count)))
    found = local_log_sql.page(table, "w", 0, 1000)
    assert [(one.seq, one.body) for one in found] == [(number + 1, str(number)) for number in range(count)]
    assert found[-1].chain == state(table).head.hash


def test_who_is_behind_is_told_and_changes_nothing(table: apsw.Connection) -> None:
    old = local_log_sql.read_head(table)
    add(table, "a")

    with pytest.raises(local_log_sql.BehindError):
        local_log_sql.add(table, old, ["b"])
    assert state(table).head.seq == 1


@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_events_are_added_all_or_none(count: int, table: apsw.Connection, path: Path) -> None:
    before = local_log_sql.read_head(table)
    head = before.after(local_log_sql.add(table, before, [str(number) for number in range(count)]))
    assert (head, state(table).head.seq) == (local_log_sql.read_head(table), count)
    stale = local_log_sql.Head(head.writer, 0, head.hash)
    with pytest.raises(local_log_sql.BehindError):
        local_log_sql.add(table, stale, ["x"] * (count + 1))
    assert not table.in_transaction
    with contextlib.closing(local_log_sql.connect_reader(path)) as other:
        assert local_log_sql.read_head(other) == head


@pytest.mark.parametrize("odd", ["a\x1eb", "", "é\U0001f600,"])
def test_a_page_gives_every_text_as_it_is(odd: str, table: apsw.Connection) -> None:
    add(table, "a", odd, "b")
    found = local_log_sql.page(table, "w", 0, 10)
    assert [(one.seq, one.body) for one in found] == [(1, "a"), (2, odd), (3, "b")]
    assert found[2].chain == state(table).head.hash
    table.execute("UPDATE events SET chain = NULL WHERE seq = 2")
    assert [one.chain is None for one in local_log_sql.page(table, "w", 0, 10)] == [False, True, False]
    assert local_log_sql.page(table, "w", 3, 10) == []


def test_two_connections_write_one_chain(table: apsw.Connection, path: Path) -> None:
    with contextlib.closing(local_log_sql.connect(path, 1 << 20)) as other:
        add(table, "a")
        add(other, "b")
        add(table, "c")
    assert [entry.seq for entry in local_log_sql.page(table, "", 0, 10)] == [1, 2, 3]
    assert state(table).head.hash == link(link(link(start(state(table).head.writer).hash, 1, "a"), 2, "b"), 3, "c")


def test_a_log_from_before_there_were_chains_becomes_the_beginning_of_one(path: Path) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as old:
        old.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL)")
        old.execute("INSERT INTO events VALUES (3, 'a'), (4, 'b'), (9, 'c')")
        assert local_log_sql.read_state(old) is None
    with contextlib.closing(local_log_sql.connect(path, 1 << 20)) as table:
        add(table, "d")
        found = local_log_sql.page(table, state(table).head.writer, 0, 10)
        tip = start(state(table).head.writer).hash
        for number, (entry, body) in enumerate(zip(found, "abcd", strict=True), 1):
            tip = link(tip, number, body)
            assert (entry.seq, entry.body, entry.chain) == (number, body, tip)


def test_what_was_rejected_is_set_aside_and_stays_in_the_chain(table: apsw.Connection) -> None:
    add(table, "a", "b", "c")
    local_log_sql.discard(table, 2, {2: "odd"}, 5.0)
    local_log_sql.discard(table, 2, {2: "odd"}, 6.0)
    assert [entry.seq for entry in local_log_sql.page(table, "w", 0, 10)] == [3]
    assert [entry.seq for entry in local_log_sql.page(table, "w", 0, 10, rejected=True)] == [2, 3]
    assert (state(table).rejected, state(table).backlog) == (1, 1)


def test_a_page_is_bounded_in_number_and_size(table: apsw.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    add(table, *("x" * 10 for _ in range(10)))
    assert [entry.seq for entry in local_log_sql.page(table, "w", 2, 3)] == [3, 4, 5]
    monkeypatch.setattr(local_log_sql, "MAX_PAGE", 25)
    assert [entry.seq for entry in local_log_sql.page(table, "w", 0, 10)] == [1, 2, 3]


def test_a_change_that_fails_changes_nothing(table: apsw.Connection) -> None:
    add(table, "a")
    before = state(table)

    def fail() -> None:
        with local_log_sql.change(table):
            local_log_sql.add(table, local_log_sql.read_head(table), ["b"])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert state(table) == before


def test_a_problem_stays_until_events_are_moved_again(table: apsw.Connection) -> None:
    add(table, json.dumps({"time": 1.0}))
    local_log_sql.note_problem(table, "no store")
    local_log_sql.set_destination(table, "embedded")
    assert (state(table).problem, state(table).destination, state(table).oldest) == (
        "no store",
        "embedded",
        '{"time": 1.0}',
    )
    local_log_sql.discard(table, 1, {}, 2.0)
    assert (state(table).problem, state(table).oldest) == (None, None)
