"""The search for a text by itself: which slices it asks for, and when it stops."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.console import text_search
from proxy.console.text_search import search_back
from proxy.core.event import Cursor, Filter
from proxy.errors import StoreUnavailableError

DAY = 86_400.0


@dataclass
class Reader:
    """A trail with calls at these times. `seconds` a day is what searching takes, by a clock of its own."""

    times: list[float]
    seconds: float = 0.0
    fails: bool = False
    clock: float = 0.0
    asked: list[tuple[float, float | None]] = field(default_factory=list)

    async def calls(self, where: Filter, limit: int, before: Cursor | None) -> list[Any]:
        if self.fails and self.asked:
            raise StoreUnavailableError("no answer")
        assert where.since is not None
        self.asked.append((where.since, where.until))
        top = before.time if before is not None and where.until is None else where.until or time.time()
        self.clock += 0.001 + self.seconds * max(top - where.since, 0.0) / DAY
        bound = before.time if before is not None else float("inf")
        within = [at for at in self.times if where.since <= at < min(where.until or float("inf"), bound)]
        return sorted(within, reverse=True)[:limit]


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def run(reader: Reader, rows: int = 3, before: Cursor | None = None, since: float | None = None) -> Any:
        monkeypatch.setattr(text_search.time, "monotonic", lambda: reader.clock)
        return await search_back(reader, Filter(text="x", since=since), rows, before)  # type: ignore[arg-type]

    return run


async def test_slices_meet_and_reach_the_beginning_in_few_steps(search: Any) -> None:
    now = time.time()
    reader = Reader([now + 3000, now - 60, now - 400 * DAY])
    found = await search(reader, rows=10)
    assert (list(found.calls), found.until) == ([now + 3000, now - 60, now - 400 * DAY], None)
    assert reader.asked[0][1] is None
    assert all(later[1] == one[0] for one, later in zip(reader.asked, reader.asked[1:], strict=False))
    assert reader.asked[-1][0] == 0.0
    assert len(reader.asked) < 12


async def test_it_stops_in_time_and_goes_on_where_it_stopped(search: Any) -> None:
    now = time.time()
    times = [now - day * DAY for day in range(1, 30)]
    reader = Reader(times, seconds=0.1)
    found = await search(reader, rows=100)
    assert reader.clock < 2 * text_search.FIRST_SECONDS
    assert found.until is not None
    assert list(found.calls) == [at for at in times if at >= found.until.time]
    seen, pages = list(found.calls), 0
    while found.until is not None:
        pages += 1
        found = await search(Reader(times, seconds=0.1), rows=100, before=found.until)
        seen += found.calls
        assert pages < 5000
        if found.until is not None and found.until.time < times[-1]:
            break
    assert seen == times


async def test_it_asks_no_further_than_the_page_or_the_filter_needs(search: Any) -> None:
    now = time.time()
    reader = Reader([now - 10, now - 20, now - 30, now - 40])
    assert list((await search(reader)).calls) == [now - 10, now - 20, now - 30]
    assert len(reader.asked) == 1
    reader = Reader([now - 10, now - 3 * DAY])
    assert list((await search(reader, since=now - DAY)).calls) == [now - 10]
    assert reader.asked[-1][0] == now - DAY


async def test_a_store_that_does_not_answer_leaves_what_was_found(search: Any) -> None:
    now = time.time()
    found = await search(Reader([now - 10], fails=True))
    assert (list(found.calls), found.is_slow) == ([now - 10], True)
    assert found.until is not None
