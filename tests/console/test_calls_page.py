"""The list of calls: pages, filters, and what follows."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from proxy.console import calls_page, live_feed, text_search
from proxy.errors import StoreUnavailableError
from tests.support.audit_fixture import TRAIL, World, event
from tests.support.console_fixture import Desk, open_desk
from tests.support.timeouts import PATIENCE


@pytest.fixture
def world(desk: Desk) -> World:
    return World(desk.console.trail.state_dir, None)


def listed(text: str) -> list[str]:
    return re.findall(r'<tr data-id="([^"]+)"', text)


async def test_pages_go_back_by_their_last_call_and_miss_none(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_page, "PAGE_ROWS", 4)
    # Several at one moment: the time alone is no place to go on from.
    world.record(*(event(number, time=1_763_000_000.1234567 + number // 3) for number in range(1, 7)))
    world.ship()
    world.record(*(event(number, time=1_763_000_000.1234567 + number // 3) for number in range(7, 11)))
    await desk.log_in()
    seen, path = [], "/calls"
    while path:
        text = (await desk.http.get(path)).text
        seen += listed(text)
        older = re.search(r'rel="next" href="([^"]+)"', text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert seen == [f"call-{number:04}" for number in range(10, 0, -1)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("decision=deny", ["call-0003"]),
        ("agent=bob", ["call-0003"]),
        ("server=bank.*", ["call-0004"]),
        ("tool=*file", ["call-0001"]),
        ("rule=no-shell", ["call-0003"]),
        ("text=HOSTS", ["call-0001"]),
        ("text=no-sh", ["call-0003"]),
        ("text=%25", []),
        ("text=_etc_", []),
        ("since=1h", []),
        ("", ["call-0004", "call-0003", "call-0001"]),
    ],
)
@pytest.mark.parametrize("shipped", [True, False])
async def test_filters(
    query: str, found: list[str], shipped: bool, desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "FIRST_SECONDS", PATIENCE)  # a slow machine's search is no shorter
    world.record(*TRAIL)
    if shipped:
        world.ship()
    await desk.log_in()
    text = (await desk.http.get(f"/calls?{query}")).text
    assert [one for one in listed(text) if one] == found
    assert ("No call matches" in text) is bool(query)


async def test_a_text_with_quotes_is_found_in_arguments(desk: Desk, world: World) -> None:
    world.record(event(1, arguments={"q": 'say "hi" \\ 100%'}), event(2, arguments={"q": "say hi 1000"}))
    world.ship()
    await desk.log_in()
    for text in ('"hi"', "\\ 100%", 'hi" \\'):
        answer = await desk.http.get("/calls", params={"text": text})
        assert [one for one in listed(answer.text) if one] == ["call-0001"], text


async def test_a_filter_that_makes_no_sense_is_refused(desk: Desk) -> None:
    await desk.log_in()
    assert (await desk.http.get("/calls?decision=maybe")).status_code == 400


async def test_a_store_that_does_not_answer_is_told_on_the_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StoreUnavailableError("no answer in 10 s")

    monkeypatch.setattr("proxy.audit.reader.AuditReader.calls", fail)
    await desk.log_in()
    answer = await desk.http.get("/calls?tool=x*")
    assert answer.status_code == 200
    assert "no answer in 10 s" in answer.text
    assert "Choose a shorter time" in answer.text
    # Of a text, whatever was found before the store gave up.
    assert "The store did not answer for what is older" in (await desk.http.get("/calls?text=x")).text


async def test_a_text_is_searched_for_further_and_further_back_while_there_is_time(
    desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "FIRST_SECONDS", 60.0)
    monkeypatch.setattr(text_search, "FURTHER_SECONDS", 60.0)
    now = time.time()
    world.record(event(1, time=now - 40 * 86_400), event(2, time=now - 7200), event(3, time=now - 60))
    await desk.log_in()
    text = (await desk.http.get("/calls?text=read")).text
    assert [one for one in listed(text) if one] == ["call-0003", "call-0002", "call-0001"]
    assert "Searched back to" not in text
    monkeypatch.setattr(text_search, "FIRST_SECONDS", -1.0)
    text = (await desk.http.get("/calls?text=read")).text
    assert [one for one in listed(text) if one] == ["call-0003"]
    assert "Searched back to" in text
    further = re.search(r'rel="next" href="([^"]+)"', text)
    assert further is not None
    text = (await desk.http.get(further[1].replace("&amp;", "&"))).text
    assert [one for one in listed(text) if one] == ["call-0002", "call-0001"]
    assert "Search further" not in text


async def test_the_stream_ends_when_its_operator_is_revoked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feed, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(calls_page, "KEEP_ALIVE_SECONDS", 0.05)
    await desk.log_in()
    session = desk.console.sessions.find(next(iter(desk.http.cookies.values())))
    assert session is not None
    page = calls_page.CallsPage(desk.console)
    said = b""
    async for chunk in page._events(session, None):
        said += chunk
        if b"event: pending" in said and desk.tokens.names():
            desk.tokens.revoke("ann")
    assert said.startswith(b"retry: 2000\n\n")
    assert said.endswith(b"event: ended\ndata: null\n\n")


async def test_postgres_answers_the_same(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_search, "FIRST_SECONDS", 60.0)  # on a busy machine, the time of a page may be too short
    async with open_desk(tmp_path, database_url=database_url) as desk:
        world = World(desk.console.trail.state_dir, database_url)
        world.record(*TRAIL)
        world.ship()
        world.record(event(9, arguments={"q": 'say "hi" 100%'}))
        await desk.log_in()
        for query, found in (
            ("", ["call-0009", "call-0004", "call-0003", "call-0001"]),
            ("text=HOSTS", ["call-0001"]),
            ("text=%22hi%22", ["call-0009"]),
            ("text=%25", ["call-0009"]),
            ("tool=*file&decision=allow", ["call-0009", "call-0001"]),
        ):
            answer = await desk.http.get(f"/calls?{query}")
            assert [one for one in listed(answer.text) if one] == found, query
        assert "Answered" in (await desk.http.get("/calls/call-0001")).text
