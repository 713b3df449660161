"""The overview page."""

from __future__ import annotations

import re
import time

import pytest

from proxy.console import overview_page
from proxy.console.overview_page import SPANS
from proxy.core.model import Finding
from proxy.errors import StoreUnavailableError
from tests.console.xss_corpus import CORPUS
from tests.support.audit_fixture import World, event
from tests.support.console_fixture import Desk


@pytest.fixture
def world(desk: Desk) -> World:
    return World(desk.console.trail.state_dir, None)


def figure(text: str, name: str) -> str:
    found = re.search(rf'id="{name}">([^<]+)<', text)
    assert found is not None
    return found[1]


async def test_it_counts_what_is_in_the_store_and_in_the_log(desk: Desk, world: World) -> None:
    now = time.time()
    world.record(event(1, time=now - 20, redactions=(Finding("secrets.aws", "x", "f"),)), event(2, time=now - 4000))
    world.ship()
    world.record(
        event(3, time=now - 10, decision="deny", reason="policy_denied", rule="no-shell"),
        event(4, "completed", call_id="call-0001", time=now - 9, total_ms=250.0),
    )
    await desk.log_in()
    text = (await desk.http.get("/?since=1h")).text
    assert (figure(text, "total"), figure(text, "denied"), figure(text, "masked")) == ("2", "1", "1")
    assert "250 ms" in text
    for name in ("no-shell", "secrets.aws", "read_file", "ada", "files.example"):
        assert f">{name}<" in text
    assert figure((await desk.http.get("/?since=24h")).text, "total") == "3"


@pytest.mark.parametrize("wrong", ["", "1y", "<script>"])
async def test_a_span_that_there_is_not_is_refused(wrong: str, desk: Desk) -> None:
    await desk.log_in()
    assert (await desk.http.get("/", params={"since": wrong})).status_code == 400


async def test_an_empty_trail_has_an_overview_too(desk: Desk) -> None:
    await desk.log_in()
    for span in SPANS:
        text = (await desk.http.get(f"/?since={span}")).text
        assert figure(text, "total") == "0"
        assert "Nothing was denied." in text


async def test_much_is_sampled_and_says_so(desk: Desk, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_page, "SAMPLE", 240)
    now = time.time()
    world.record(*(event(number, time=now - 700) for number in range(100)))
    await desk.log_in()
    text = (await desk.http.get("/")).text
    assert 'id="sampled"' in text
    assert figure(text, "total") == "100"


async def test_a_store_that_does_not_answer_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise StoreUnavailableError("the store is closed")

    await desk.log_in()
    monkeypatch.setattr(desk.console.trail, "open", fail)
    answer = await desk.http.get("/")
    assert answer.status_code == 503
    assert "the store is closed" in answer.text


async def test_names_are_text_alone(desk: Desk, world: World) -> None:
    now = time.time()
    for number, text in enumerate(CORPUS):
        names = {"tool": text, "agent": text, "server": text, "rule": text}
        world.record(event(number, time=now - 5, decision="deny", **names))
    await desk.log_in()
    page = (await desk.http.get("/")).text
    assert "<script>window" not in page
    assert "<img src=x" not in page
    assert "\u202e" in page or "&lt;" in page


@pytest.mark.parametrize("name", SPANS)
def test_slices_cover_the_span_up_to_now_at_round_times(name: str) -> None:
    span, now = SPANS[name], 1_763_000_123.7
    starts = span.starts(now)
    assert starts[-2] <= now < starts[-1]
    assert len(starts) == span.seconds // span.slice + 1
    assert all(start % span.slice == 0 for start in starts)
