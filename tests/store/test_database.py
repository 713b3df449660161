"""Steps: queries out, rows in, a result at the end."""

from __future__ import annotations

import pytest

from proxy.store.database import Query, Steps, Undo, drive


def add(count: int) -> Steps[int]:
    total = 0
    for number in range(count):
        rows = yield Query("SELECT $1", (number,))
        total += rows[0][0]
    return total


def test_each_query_is_answered_in_its_turn() -> None:
    asked: list[Query] = []

    def execute(query: Query) -> list[tuple[int]]:
        asked.append(query)
        return [(query.values[0] * 10,)]

    assert drive(add(3), execute) == 30
    assert asked == [Query("SELECT $1", (number,)) for number in range(3)]


def test_steps_may_ask_nothing() -> None:
    assert drive(add(0), lambda _: []) == 0


def test_what_goes_wrong_comes_out() -> None:
    def undo() -> Steps[None]:
        yield Query("SELECT 1")
        raise Undo("so")

    with pytest.raises(Undo) as caught:
        drive(undo(), lambda _: [])
    assert caught.value.result == "so"
    with pytest.raises(ZeroDivisionError):
        drive(add(1), lambda _: [(1 // 0,)])
