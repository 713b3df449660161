"""Operators look at the rules that agents propose and decide on them. Knows no transport.

To accept one says that a person takes it over: it puts nothing in force. A decision is recorded first, durably.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from proxy.core.approvals import Role
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.core.rule_proposals import RuleProposal, RuleState
from proxy.errors import ReviewError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.approvals import Operator
    from proxy.core.interfaces import EventSink
    from proxy.core.model import JsonObject
    from proxy.core.rule_proposals import RuleProposalStore

MIN_PREFIX: Final = 8
SEARCHED: Final = 1000
MAX_REASON: Final = 1000
_NEEDS: Final = {RuleState.ACCEPTED: Role.ADMIN, RuleState.REJECTED: Role.APPROVER}


class RuleReview:
    """Lists and decides on rule proposals. Every method raises StoreUnavailableError, and ReviewError where refused."""

    def __init__(self, store: RuleProposalStore, sink: EventSink, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._sink = sink
        self._clock = clock

    async def list(self, states: Sequence[RuleState] = (), limit: int = 100) -> list[JsonObject]:
        """Return the newest proposals that stand in any of `states` (none given: in any), newest first."""
        return [one.data() for one in await self._store.newest(states, limit)]

    async def show(self, proposal_id: str) -> JsonObject:
        """Return one by its id, or by a beginning of it that no other has."""
        return (await self._find(proposal_id)).data()

    async def accept(self, proposal_id: str, operator: Operator, reason: str = "") -> JsonObject:
        """Mark a proposal as accepted. Raises AuditUnavailableError, changing nothing."""
        return await self._decide(proposal_id, RuleState.ACCEPTED, operator, _checked(reason))

    async def reject(self, proposal_id: str, operator: Operator, reason: str) -> JsonObject:
        """Reject a proposal, and say why. Raises AuditUnavailableError, changing nothing."""
        if not (reason := _checked(reason)):
            raise ReviewError("reason_required", "a rejection needs a reason: say why")
        return await self._decide(proposal_id, RuleState.REJECTED, operator, reason)

    async def _decide(self, proposal_id: str, state: RuleState, operator: Operator, reason: str) -> JsonObject:
        if not operator.role.includes(_NEEDS[state]):
            words = f"{operator.name} is a {operator.role}; this needs the role {_NEEDS[state]}"
            raise ReviewError("role_required", words)
        found = await self._find(proposal_id)
        if found.state is not RuleState.WAITING:
            raise ReviewError("not_pending", f"the proposal is {found.state} already, by {found.operator}")
        now = self._clock()
        await self._sink.record(_event(found, state, operator.name, reason, now))
        decided = await self._store.decide(found.proposal_id, state, operator.name, reason, now)
        if decided is None:
            raise ReviewError("conflict", "somebody else decided on the proposal meanwhile")
        return decided.data()

    async def _find(self, proposal_id: str) -> RuleProposal:
        if (found := await self._store.find(proposal_id)) is not None:
            return found
        known = await self._store.newest((), SEARCHED) if len(proposal_id) >= MIN_PREFIX else ()
        fitting = [one for one in known if one.proposal_id.startswith(proposal_id)]
        if len(fitting) > 1:
            raise ReviewError("ambiguous_id", f"{len(fitting)} proposals begin with {proposal_id!r}; write more of it")
        if not fitting:
            listing = "list them with `interlock policy proposals list`"
            raise ReviewError("not_found", f"there is no proposed rule {proposal_id!r}; {listing}")
        return fitting[0]


def _checked(reason: str) -> str:
    if len(reason := reason.strip()) > MAX_REASON:
        raise ReviewError("bad_reason", f"the reason has more than {MAX_REASON} characters")
    return reason


def _event(proposal: RuleProposal, state: RuleState, operator: str, reason: str, now: float) -> AuditEvent:
    detail = {"rule_proposal_id": proposal.proposal_id, "proposed_rule": proposal.rule_id, "digest": proposal.digest}
    return AuditEvent(
        event_id=new_id(),
        kind=f"rule_{state}",
        time=now,
        call_id=proposal.call_id,
        agent=proposal.agent,
        detail={**detail, "operator": operator, "why": reason},
    )
