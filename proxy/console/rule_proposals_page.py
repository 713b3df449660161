"""Rules that agents propose: each with what it would change and let through. Nothing here puts one in force."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from proxy.console.context import NavEntry, action, view
from proxy.console.draft_replay import DraftResult, try_draft
from proxy.console.login_page import see_other
from proxy.core.approvals import Role
from proxy.core.event import Filter
from proxy.core.rule_proposals import RuleState
from proxy.errors import AuditUnavailableError, PolicyError, StoreUnavailableError
from proxy.policy.load import load_sources, load_text
from proxy.policy.merged_file import merged_values
from proxy.policy_learning.proof import prove
from proxy.redact import builtin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from proxy.config import Settings
    from proxy.console.context import Console
    from proxy.core.event import CallRecord
    from proxy.core.model import JsonObject
    from proxy.policy_learning.widening import Verdict

REPLAYED = 2000
MAX_CHANGES = 6
MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class Effect:
    """What a rule would do beside the policy."""

    result: DraftResult
    proof: Verdict | None


class RuleProposalsPage:
    nav: NavEntry | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [
            view("/policy/proposals/{id}", self.show),
            action("/policy/proposals/{id}/accept", self.accept, Role.ADMIN),
            action("/policy/proposals/{id}/reject", self.reject, Role.APPROVER),
        ]

    async def show(self, request: Request) -> Response:
        one = await self._console.rules.show(request.path_params["id"])
        # One at a time: it takes a processor for a while.
        async with self._turn:
            effect = await asyncio.to_thread(_effect, self._console.settings, one, await self._calls())
        values: dict[str, Any] = {"one": one, "effect": effect, "max_changes": MAX_CHANGES}
        return self._console.renderer.page(request, "rule_proposal.html", values)

    async def accept(self, request: Request, form: Mapping[str, str]) -> Response:
        """Record that a person takes the rule over, and open it in the editor, unsaved."""
        one = await self._console.rules.show(request.path_params["id"])
        if one["state"] != RuleState.ACCEPTED:
            person, reason = request.state.me.person, form.get("reason", "")
            one = await self._console.rules.accept(one["proposal_id"], person, reason)
        return see_other("/policy?" + urlencode({"proposal": one["proposal_id"]}))

    async def reject(self, request: Request, form: Mapping[str, str]) -> Response:
        person, reason = request.state.me.person, form.get("reason", "")
        await self._console.rules.reject(request.path_params["id"], person, reason)
        return see_other("/policy#proposed")

    async def _calls(self) -> Sequence[CallRecord]:
        try:
            async with self._console.trail.open() as reader:
                return await reader.calls(Filter(), REPLAYED)
        except (StoreUnavailableError, AuditUnavailableError):
            return ()


def _effect(settings: Settings, one: JsonObject, calls: Sequence[CallRecord]) -> Effect:
    result = try_draft(settings.policy, str(one["text"]), calls)
    if result.problems:
        return Effect(result, None)
    try:
        before = load_sources(settings.policy, builtin(), also=settings.profile_files)
        after = (*before, load_text(str(one["text"]), "proposal", builtin()))
        first, second = (merged_values(sources, with_defaults=True) for sources in (before, after))
    except PolicyError:
        return Effect(result, None)
    return Effect(result, prove(before, after, (first, second)))


async def waiting_rules(console: Console) -> Sequence[JsonObject]:
    """Return the proposals that wait, for the page of the policy; none where the store does not answer."""
    try:
        return await console.rules.list([RuleState.WAITING], MAX_LISTED)
    except StoreUnavailableError:
        return ()
