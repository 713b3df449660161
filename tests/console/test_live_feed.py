"""One look at the trail for every browser, and none for nobody."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from proxy.audit.live_tail import News
from proxy.console import live_feed
from proxy.console.call_filter import CallFilter
from proxy.console.live_feed import MAX_MESSAGES, MAX_WAITING, LiveFeed, Watcher
from tests.support.timeouts import PATIENCE

CALL = {"event_id": "e", "call_id": "c1", "kind": "decided", "time": 1.0, "method": "tools/call", "tool": "t"}
END = CALL | {"event_id": "f", "kind": "completed", "outcome": "done"}


class Tail:
    def __init__(self) -> None:
        self.looks = 0
        self.news: list[News | Exception] = []

    async def look(self) -> News:
        self.looks += 1
        next_one = self.news.pop(0) if self.news else News()
        if isinstance(next_one, Exception):
            raise next_one
        return next_one


class Feed(LiveFeed):
    def __init__(self) -> None:
        self.tail = Tail()
        self.waits: Any = {"count": 0, "ids": []}

        async def pending() -> Any:
            return self.waits

        super().__init__(lambda: self.tail, pending)  # type: ignore[arg-type,return-value]


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> Feed:
    monkeypatch.setattr(live_feed, "TICK_SECONDS", 0.001)
    return Feed()


async def told(watcher: Watcher) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        return parsed(await watcher.waiting.get())


def parsed(data: bytes) -> list[Any]:
    return [(name, json.loads(value)) for name, value in re.findall(r"event: (\w+)\ndata: (.*)\n\n", data.decode())]


async def test_a_watcher_is_told_of_calls_that_fit_and_of_how_they_end(feed: Feed) -> None:
    feed.tail.news = [News([CALL, CALL | {"tool": "u", "call_id": "c2"}, END, CALL | {"method": "tools/list"}], 3)]
    with feed.watch(CallFilter(tool="t")) as calls, feed.watch(None) as other:
        messages = await told(calls)
        assert [name for name, _ in messages] == ["pending", "call", "end", "skipped"]
        assert messages[1][1]["id"] == "c1"
        assert messages[2][1] == {"id": "c1", "outcome": "done", "failed": False, "ms": ""}
        assert messages[3][1] == 3
        assert await told(other) == [("pending", {"count": 0, "ids": []})]
    await feed.close()


async def test_nobody_looks_when_nobody_watches(feed: Feed) -> None:
    assert feed.tail.looks == 0
    with feed.watch(None) as watcher:
        await told(watcher)
        task = feed._task
    assert task is not None
    await asyncio.wait_for(task, PATIENCE)
    looks = feed.tail.looks
    with feed.watch(None) as watcher:
        await told(watcher)
    assert feed.tail.looks > looks
    await feed.close()


async def test_a_look_that_fails_does_not_end_the_feed(feed: Feed) -> None:
    feed.tail.news = [RuntimeError("broken"), News([CALL])]
    with feed.watch(CallFilter()) as watcher:
        names = [name for name, _ in await told(watcher)]
        while "call" not in names:
            names += [name for name, _ in await told(watcher)]
    await feed.close()


async def test_who_comes_later_is_told_at_once_how_many_wait(feed: Feed) -> None:
    with feed.watch(None) as first:
        await told(first)
        with feed.watch(None) as second:
            assert parsed(second.waiting.get_nowait()) == [("pending", feed.waits)]
    await feed.close()


def test_a_slow_browser_misses_the_oldest_and_holds_nobody_up() -> None:
    watcher = Watcher(None)
    for number in range(MAX_WAITING + 5):
        watcher.tell(b"%d" % number)
    assert watcher.waiting.qsize() == MAX_WAITING
    assert watcher.waiting.get_nowait() == b"5"


def test_more_calls_than_can_be_read_are_left_out_and_counted() -> None:
    events = [CALL | {"call_id": str(number)} for number in range(150)]
    messages = live_feed._of_calls(CallFilter(), events, 1)
    assert len(messages) == MAX_MESSAGES + 1
    assert messages[0][1]["id"] == "100"
    assert messages[-1] == ("skipped", 101)


def test_nothing_in_a_message_ends_its_line() -> None:
    data = live_feed.encoded([("call", {"tool": "a\nevent: x\r\u2028\u0085"})])
    assert data.isascii()
    assert data.count(b"\n") == 3
    assert b"\r" not in data
