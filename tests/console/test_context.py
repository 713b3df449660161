"""Routes: a form needs the session's token and a role."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from proxy.console.context import Me, action, view
from proxy.core.approvals import Operator, Role
from tests.support.console_fixture import Desk

ROLES = list(Role)


async def done(_: Request, form: Mapping[str, str]) -> Response:
    return PlainTextResponse(f"done with {form['x']}")


@pytest.mark.parametrize("needed", ROLES)
@pytest.mark.parametrize("given", ROLES)
async def test_a_form_needs_its_role(needed: Role, given: Role, desk: Desk) -> None:
    desk.app._app.router.routes.append(action("/act", done, needed))
    desk.tokens.add("ann", Role.ADMIN)
    await desk.log_in()
    desk.tokens.change("ann", given)  # at once, whatever the session was opened with
    answer = await desk.post("/act", x="1")
    may = given.includes(needed)
    assert answer.status_code == (200 if may else 403)
    assert ("done with 1" in answer.text) is may
    assert (f"the role {needed}" in answer.text) is not may


def test_a_view_changes_nothing() -> None:
    async def show(_: Request) -> Response:
        return Response()

    assert view("/x", show).methods == {"GET", "HEAD"}


def test_who_may_do_what() -> None:
    assert [Me(Operator("ann", role), "").approves for role in ROLES] == [False, True, True]
    assert [Me(Operator("ann", role), "").administers for role in ROLES] == [False, False, True]
