"""The end of every login. What it refuses is in the tests of each way to log in."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.responses import Response

from proxy.errors import AuditUnavailableError
from tests.support.console_fixture import Desk


async def test_a_session_that_could_not_be_recorded_is_ended(desk: Desk) -> None:
    desk.tokens.add("ann")
    session = desk.console.sessions.open("ann")
    assert session is not None
    desk.sink.fail = AuditUnavailableError("disk full")
    request = Request({"type": "http", "headers": [], "client": None})
    with pytest.raises(AuditUnavailableError):
        await desk.console.door.admit(request, Response(), "ann", session, "token")
    assert desk.console.sessions.find(session) is None


def test_tickets_of_two_ways_are_two_cookies(desk: Desk) -> None:
    response = Response()
    door = desk.console.door
    assert door.set_ticket(response, "oidc", 60, "lax") != door.set_ticket(response, "passkey", 60, "strict")
    cookies = response.headers.getlist("set-cookie")
    assert [cookie.partition("=")[0] for cookie in cookies] == ["interlock-8090-oidc", "interlock-8090-passkey"]
    assert [("SameSite=lax" in cookie, "HttpOnly" in cookie) for cookie in cookies] == [(True, True), (False, True)]
