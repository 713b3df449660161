"""Login: by a link or a token, recorded, slow for whoever guesses."""

from __future__ import annotations

import asyncio

import pytest

from proxy.console import door
from proxy.console.login_page import next_path
from proxy.errors import AuditUnavailableError
from tests.support.console_fixture import Desk


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "WRONG_SECONDS", 0.0)


async def test_a_link_logs_in_once(desk: Desk) -> None:
    desk.tokens.add("ann")
    secret = desk.console.links.make("ann")
    assert (await desk.http.post("/login", data={"link": secret})).status_code == 303
    desk.http.cookies.clear()
    again = await desk.http.post("/login", data={"link": secret})
    assert again.status_code == 403
    assert "was used or is too old" in again.text
    assert "set-cookie" not in again.headers
    assert desk.sink.kinds() == ["operator_login", "operator_refused"]
    assert desk.sink.events[0].detail["operator"] == "ann"


async def test_a_token_logs_in(desk: Desk) -> None:
    token = desk.tokens.add("ann")
    answer = await desk.http.post("/login", data={"token": f" {token}\n", "next": "/calls?tool=x"})
    assert answer.headers["location"] == "/calls?tool=x"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert token not in str(desk.sink.events)


@pytest.mark.parametrize("token", ["", "ilo_wrong", "ilk_agent", "x" * 5000, "\x00"])
async def test_a_wrong_token_is_refused_and_recorded_without_it(token: str, desk: Desk) -> None:
    desk.tokens.add("ann")
    answer = await desk.http.post("/login", data={"token": token})
    assert answer.status_code == 403
    assert not answer.cookies
    (event,) = desk.sink.events
    assert (event.kind, event.reason, event.detail["via"]) == ("operator_refused", "operator_auth", "console")
    assert not token or token not in str(event)


async def test_the_link_of_a_revoked_operator_is_worth_nothing(desk: Desk) -> None:
    desk.tokens.add("ann")
    secret = desk.console.links.make("ann")
    desk.tokens.revoke("ann")
    assert (await desk.http.post("/login", data={"link": secret})).status_code == 403


async def test_nobody_is_logged_in_without_a_record(desk: Desk) -> None:
    token = desk.tokens.add("ann")
    desk.sink.fail = AuditUnavailableError("disk full")
    answer = await desk.http.post("/login", data={"token": token})
    assert answer.status_code == 503
    assert not answer.cookies


async def test_a_damaged_file_of_links_lets_nobody_in(desk: Desk) -> None:
    desk.console.links.path.write_text("{")
    assert (await desk.http.post("/login", data={"link": "ill_x"})).status_code == 503


async def test_guessing_is_one_at_a_time_and_bounded_while_a_right_token_never_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "WRONG_SECONDS", 3600.0)
    token = desk.tokens.add("ann")
    guesses = [asyncio.create_task(desk.http.post("/login", data={"token": "x"})) for _ in range(30)]
    done, waiting = await asyncio.wait(guesses, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 10:
        more, waiting = await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert {guess.result().status_code for guess in done} == {429}
    assert len(waiting) == door.MAX_WAITING
    assert desk.sink.kinds() == ["operator_refused"]
    assert (await desk.http.post("/login", data={"token": token})).status_code == 303
    for guess in waiting:
        guess.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_logout_ends_the_session_on_the_server(desk: Desk) -> None:
    await desk.log_in()
    (kept,) = list(desk.http.cookies.jar)
    answer = await desk.post("/logout")
    assert answer.headers["location"] == "/login?ended=1"
    assert f"Path={kept.path}" in answer.headers["set-cookie"]
    assert not list(desk.http.cookies.jar)
    desk.http.cookies.jar.set_cookie(kept)
    assert (await desk.http.get("/calls")).headers["location"] == "/login?ended=1&next=/calls"


async def test_whoever_is_logged_in_needs_no_login(desk: Desk) -> None:
    assert "Paste" not in (page := (await desk.http.get("/login")).text)
    assert "Operator's token" in page
    await desk.log_in()
    (session,) = list(desk.http.cookies.jar)
    assert (await desk.http.get(f"{session.path}login")).headers["location"] == "/calls"


@pytest.mark.parametrize(
    "path",
    ["", "//evil.example", "/\\evil.example", "http://evil.example", "javascript:alert(1)", "/a\r\nx: y", "/login"],
)
def test_a_login_leads_nowhere_else(path: str) -> None:
    assert next_path(path) == "/calls"
    assert next_path("/approvals?x=1") == "/approvals?x=1"
