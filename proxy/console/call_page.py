"""One call as a timeline, why it was decided so, and what a rule from it would change."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

from proxy.console.call_rows import row_of_event
from proxy.console.context import action, view
from proxy.console.draft_replay import MAX_DRAFT, try_draft
from proxy.console.rule_draft import ACTIONS, rule_from_call, suggested_action
from proxy.console.security import RefusedError
from proxy.console.timeline import timeline
from proxy.core.approvals import Role
from proxy.core.event import Filter
from proxy.errors import ReviewError, StoreUnavailableError
from proxy.policy.explain import explain
from proxy.policy.replay import recorded_call, rests_on_masks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from proxy.console.context import Console, NavEntry
    from proxy.console.timeline import Timeline

REPLAYED: Final = 1000
MAX_CHANGES: Final = 20
# Fields that the page asks for; an event leaves out those that are empty.
_SHOWN: Final = (
    *("agent", "authenticated", "server", "method", "tool", "transport", "revision", "session", "jsonrpc_id", "host"),
    *("arguments", "arguments_hash", "decision"),
)
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")


class CallPage:
    nav: NavEntry | None = None

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [
            view("/calls/{id}", self.show),
            # A viewer may try a draft: it changes nothing.
            action("/calls/{id}/replay", self.replay, Role.VIEWER),
        ]

    async def show(self, request: Request) -> Response:
        made = await self._find(request)
        wanted = request.query_params.get("action", "")
        chosen = next((one for one in ACTIONS if one == wanted), suggested_action(made.call))
        values = {"draft": rule_from_call(made.call, chosen), "chosen": chosen, "result": None, "replayed": 0}
        return await self._page(request, made, values)

    async def replay(self, request: Request, form: Mapping[str, str]) -> Response:
        made, draft = await self._find(request), form.get("draft", "").replace("\r\n", "\n")
        if len(draft) > MAX_DRAFT:
            raise RefusedError(413, "draft_too_large", f"The draft has more than {MAX_DRAFT} characters.")
        async with self._console.trail.open() as reader:
            calls = await reader.calls(Filter(), REPLAYED)
        result = await asyncio.to_thread(try_draft, self._console.policy_path, draft, calls)
        return await self._page(request, made, {"draft": draft, "chosen": "", "result": result, "replayed": len(calls)})

    async def _find(self, request: Request) -> Timeline:
        wanted = request.path_params["id"]
        entries = []
        if _ID.fullmatch(wanted):
            async with self._console.trail.open() as reader:
                entries = await reader.find_entries(wanted)
        if not entries:
            raise RefusedError(404, "not_found", "There is no call with this id. It may have been pruned.")
        return timeline(entries)

    async def _page(self, request: Request, made: Timeline, values: Mapping[str, Any]) -> Response:
        shared: dict[str, Any] = {
            "call": {**dict.fromkeys(_SHOWN), **made.call},
            "row": row_of_event(made.call),
            "steps": made.steps,
            "proposals": [await self._proposal(one) for one in made.proposals],
            "why": self._why(made.call),
            "actions": ACTIONS,
            "max_changes": MAX_CHANGES,
        }
        return self._console.renderer.page(request, "call.html", {**shared, **values})

    async def _proposal(self, proposal_id: str) -> Mapping[str, Any]:
        """Return what is known of a proposal; of one that was swept, its id."""
        try:
            return await self._console.review.show(proposal_id)
        except (ReviewError, StoreUnavailableError):
            return {"proposal_id": proposal_id, "state": ""}

    def _why(self, call: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return how the policy in force decides the call now; None where no policy decides such an event."""
        if call.get("kind") != "decided" or not isinstance(call.get("method"), str):
            return None
        policy, again = self._console.policy.current(), recorded_call(call)
        explained = explain(policy, again).data()
        return {
            **explained,
            "same_policy": explained["policy_version"] == call.get("policy_version"),
            "masked": rests_on_masks(policy, again),
        }
