"""What a log has just written, in memory: all that comes after a number, or nothing."""

from __future__ import annotations

import pytest

from proxy.audit import recent_events
from proxy.audit.event import LogEntry
from proxy.audit.recent_events import RecentEvents


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


@pytest.mark.parametrize(("bound", "size"), [("MOST", 1), ("MOST_CHARACTERS", 100)])
def test_the_oldest_go_where_nobody_comes_for_them(bound: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_events, bound, 3 * size)
    kept = RecentEvents()
    for seq in range(1, 11):
        kept.add(some(seq, seq, size), seq)
    assert numbers(kept, 6) is None
    assert numbers(kept, 7) == [8, 9, 10]
    kept.add(some(11, 30, size), 11)
    assert numbers(kept, 27) == [28, 29, 30]
