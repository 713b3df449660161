"""Routes: a form needs the session's token and a role."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from proxy.console.context import Me, action, view
from proxy.console.operators import Operators, Role
from tests.support.console_fixture import Desk

ROLES = list(Role)


async def done(_: Request, form: Mapping[str, str]) -> Response:
    return PlainTextResponse(f"done with {form['x']}")


@pytest.mark.parametrize("needed", ROLES)
@pytest.mark.parametrize("given", ROLES)
async def test_a_form_needs_its_role(needed: Role, given: Role, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.app._app.router.routes.append(action("/act", done, needed))
    await desk.log_in()
    monkeypatch.setattr(Operators, "role", lambda *_: given)
    answer = await desk.post("/act", x="1")
    assert answer.status_code == (200 if given >= needed else 403)
    assert ("done with 1" in answer.text) is (given >= needed)
    assert (f"the role {needed.name.lower()}" in answer.text) is (given < needed)


def test_a_view_changes_nothing() -> None:
    async def show(_: Request) -> Response:
        return Response()

    assert view("/x", show).methods == {"GET", "HEAD"}


def test_who_may_do_what() -> None:
    assert [Me("ann", role, "").approves for role in ROLES] == [False, True, True]
    assert [Me("ann", role, "").administers for role in ROLES] == [False, False, True]
