"""Proposals that wait for an operator, and the decision on each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, Response

from proxy.console.argument_diff import diff
from proxy.console.context import NavEntry, action, view
from proxy.console.login_page import see_other
from proxy.console.pending import pending_proposals
from proxy.console.security import NO_STORE, RefusedError
from proxy.core.approvals import NextCalls, Role
from proxy.core.proposals import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.routing import Route

    from proxy.console.context import Console, Me
    from proxy.core.model import JsonObject

MAX_LISTED: Final = 100
MAX_STANDING: Final = 20
SPANS: Final = {"900": "15 minutes", "3600": "1 hour", "28800": "8 hours", "86400": "1 day"}
VARY: Final = "vary:"
_DECIDED: Final = [state for state in State if state not in (State.PENDING, State.PROPOSED)]


class ApprovalsPage:
    nav: NavEntry | None = NavEntry("/approvals", "Approvals", "a")

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [
            view("/approvals", self.list),
            view("/pending", self.pending),
            view("/approvals/{id}", self.show),
            action("/approvals/{id}/approve", self.approve, Role.APPROVER),
            action("/approvals/{id}/reject", self.reject, Role.APPROVER),
            action("/standing/{id}/revoke", self.revoke, Role.APPROVER),
        ]

    async def list(self, request: Request) -> Response:
        review = self._console.review
        waiting = await review.list([State.PENDING], MAX_LISTED)
        # The longest wait first: it is the one that runs out.
        waiting.sort(key=lambda one: one["expires_at"])
        standing = [one for one in await review.list_standing(MAX_LISTED) if one["state"] == "live"]
        values = {
            "waiting": waiting,
            "decided": await review.list(_DECIDED, MAX_STANDING),
            "standing": standing[:MAX_STANDING],
        }
        return self._console.renderer.page(request, "approvals.html", values)

    async def pending(self, _: Request) -> Response:
        return JSONResponse(await pending_proposals(self._console.review), headers=dict(NO_STORE))

    async def show(self, request: Request) -> Response:
        one = await self._console.review.show(request.path_params["id"])
        last = one["last_approved"]
        lines = diff(last["arguments"], one["arguments"]) if last else []
        values = {
            "one": one,
            "last": last,
            "diff": lines,
            "same": sum(line.change == "same" for line in lines),
            "spans": SPANS,
            "hindrance": _hindrance(one, request.state.me),
            "names": sorted(one["arguments"]) if isinstance(one["arguments"], dict) else [],
            "vary": VARY,
        }
        return self._console.renderer.page(request, "approval.html", values)

    async def approve(self, request: Request, form: Mapping[str, str]) -> Response:
        proposal_id, me = request.path_params["id"], request.state.me
        # The page sets it once the whole of the arguments was on the screen.
        if form.get("shown") != "yes":
            raise RefusedError(400, "not_shown", "Look at the whole of the arguments first, and approve then.")
        next_calls = _next_calls(form) if form.get("next_calls") else None
        await self._console.review.approve(proposal_id, me.person, form.get("reason", ""), next_calls)
        return see_other(f"/approvals/{_checked_id(proposal_id)}")

    async def reject(self, request: Request, form: Mapping[str, str]) -> Response:
        proposal_id, me = request.path_params["id"], request.state.me
        await self._console.review.reject(proposal_id, me.person, form.get("reason", ""))
        return see_other(f"/approvals/{_checked_id(proposal_id)}")

    async def revoke(self, request: Request, form: Mapping[str, str]) -> Response:
        me = request.state.me
        await self._console.review.revoke_standing(request.path_params["id"], me.person, form.get("reason", ""))
        return see_other("/approvals")


def _checked_id(proposal_id: str) -> str:
    # It was just found in the store, which has none but these.
    assert all(char.isalnum() or char in "._-" for char in proposal_id)
    return proposal_id


def _next_calls(form: Mapping[str, str]) -> NextCalls:
    """Parse what is approved beside the proposal. Raises RefusedError for anything but plain numbers."""
    calls, seconds = form.get("next_calls", ""), form.get("next_seconds", "")
    if not (calls.isascii() and calls.isdigit() and len(calls) < 5) or seconds not in SPANS:
        raise RefusedError(400, "bad_next", "Say for how many calls the approval stands, and for how long.")
    vary = tuple(name.removeprefix(VARY) for name in form if name.startswith(VARY))
    return NextCalls(int(calls), float(seconds), vary)


def _hindrance(one: JsonObject, me: Me) -> str:
    """Return why this operator cannot approve a proposal; empty where nothing hinders."""
    if not me.approves:
        return "You are a viewer: an approver or an admin decides."
    if one["own"] == "refuse" and me.person.runs(one["principal"]):
        return f"You run the agent {one['principal']}, and the rule wants somebody else to approve. You may reject."
    given: Any = one["approved_by"]
    if any(approval["operator"] == me.operator for approval in given):
        return "You have approved it. It waits for somebody else."
    return ""
