"""Operators look at proposals and decide on them. Knows no transport.

A decision is recorded first, durably, and made after that. So nothing is ever approved without a record; a crash
between the two leaves a record of a decision that was not made, and a proposal that still waits, which is the harmless
way round. Where the store does not follow a decision that was recorded, a `review_failed` event says so.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from proxy.core.approvals import NextCalls, Operator, Role, StandingApproval
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent, JsonObject
from proxy.core.proposals import Commit, Proposal, ProposalStore, State
from proxy.errors import ReviewError
from proxy.twophase.standing import like_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.interfaces import EventSink

MIN_PREFIX = 8
SEARCHED = 1000  # among how many of the newest proposals an abbreviated id is searched for
MAX_REASON = 1000
MAX_NEXT_CALLS = 1000
MAX_NEXT_SECONDS = 7 * 86_400.0
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_OPEN = frozenset({State.PROPOSED, State.PENDING, State.APPROVED})
_DECIDABLE = {State.APPROVED: frozenset({State.PENDING}), State.REJECTED: frozenset({State.PENDING, State.APPROVED})}


class ProposalReview:
    """Lists and decides on proposals. Every method raises StoreUnavailableError, and ReviewError where refused."""

    def __init__(self, store: ProposalStore, sink: EventSink, clock: Callable[[], float]) -> None:
        self._store = store
        self._sink = sink
        self._clock = clock

    async def list(self, states: Sequence[State] = (), limit: int = 100) -> list[JsonObject]:
        """Return the newest proposals that stand in any of `states` now (none given: in any), newest first."""
        asked = set(states) | (_OPEN if State.EXPIRED in states else set())
        found = await self._store.proposals(sorted(asked), limit)
        now = self._clock()
        return [describe(one, now) for one in found if not states or standing(one, now) in states]

    async def show(self, proposal_id: str) -> JsonObject:
        """Return one proposal by its id, or by a beginning of it that no other has.

        With it come its `commit`, who `approved_by`, and the `last_approved` call of the same tool, to compare with.
        """
        proposal = await self._find(proposal_id)
        commit = await self._store.commit(proposal.nonce)
        given = await self._store.approvals(proposal.proposal_id)
        last = await self._store.approved_call(proposal.server, proposal.tool)
        return describe(proposal, self._clock()) | {
            "commit": _describe_commit(commit) if commit else None,
            "approved_by": [asdict(one) for one in given],
            "last_approved": asdict(last) if last and last.proposal_id != proposal.proposal_id else None,
        }

    async def approve(
        self, proposal_id: str, operator: Operator, reason: str = "", next_calls: NextCalls | None = None
    ) -> JsonObject:
        """Approve a pending proposal, for a token's life at least, and with `next_calls` the next calls like it.

        Raises AuditUnavailableError, changing nothing.
        """
        _check_role(operator)
        reason = _checked(reason)
        proposal = await self._find(proposal_id)
        _check_own(proposal, operator)
        standing = _standing(proposal, operator, reason, next_calls, self._clock()) if next_calls else None
        given = await self._store.approvals(proposal.proposal_id)
        if any(one.operator == operator.name for one in given):
            _check_open(proposal, State.APPROVED, self._clock())
            raise ReviewError("already_approved", f"{operator.name} has approved it already; it needs somebody else")
        expires_at = max(proposal.expires_at, self._clock() + proposal.token_seconds)
        return await self._decide(proposal, State.APPROVED, operator.name, reason, expires_at, standing)

    async def reject(self, proposal_id: str, operator: Operator, reason: str) -> JsonObject:
        """Reject a proposal, pending or approved, not committed. Raises AuditUnavailableError; then nothing changes."""
        _check_role(operator)
        if not (reason := _checked(reason)):
            raise ReviewError("reason_required", "a rejection needs a reason: say why")
        proposal = await self._find(proposal_id)
        return await self._decide(proposal, State.REJECTED, operator.name, reason, proposal.expires_at)

    async def list_standing(self, limit: int = 100) -> Sequence[JsonObject]:
        """Return the newest standing approvals, those that are over too."""
        now = self._clock()
        return [describe_standing(one, now) for one in await self._store.standing.newest(limit)]

    async def revoke_standing(self, standing_id: str, operator: Operator, reason: str = "") -> JsonObject:
        """Revoke a standing approval: it lets nothing through from now on. Raises AuditUnavailableError."""
        _check_role(operator)
        reason = _checked(reason)
        known = await self._find_standing(standing_id)
        await self._sink.record(_revocation(known, operator.name, reason, self._clock()))
        revoked = await self._store.standing.revoke(known.standing_id, operator.name, self._clock())
        return describe_standing(revoked or await self._find_standing(known.standing_id), self._clock())

    async def _decide(
        self,
        proposal: Proposal,
        state: State,
        operator: str,
        reason: str,
        expires_at: float,
        standing: StandingApproval | None = None,
    ) -> JsonObject:
        _check_open(proposal, state, self._clock())
        detail = _detail(proposal, state, operator, reason)
        detail |= {"standing": _granted(standing)} if standing is not None else {}
        await self._sink.record(self._event(state, proposal, detail))
        try:
            decided = await self._store.decide(
                proposal.proposal_id, state, operator=operator, reason=reason, now=self._clock(), expires_at=expires_at
            )
            if decided is not None and standing is not None:
                await self._store.standing.add(standing)
        except BaseException:
            # The answer was lost, not the question: the store may have followed.
            self._sink.record_later(self._event("review_failed", proposal, detail, "unknown"))
            raise
        if decided is None:
            self._sink.record_later(self._event("review_failed", proposal, detail, "refused"))
            _check_open(await self._find(proposal.proposal_id), state, self._clock())
            raise ReviewError("conflict", f"proposal {proposal.proposal_id} changed meanwhile; look at it again")
        return describe(decided, self._clock())

    def _event(self, kind: str, proposal: Proposal, detail: JsonObject, outcome: str | None = None) -> AuditEvent:
        return AuditEvent(
            event_id=new_id(),
            kind=kind,
            time=self._clock(),
            call_id=proposal.call_id,
            agent=proposal.principal,
            server=proposal.server,
            tool=proposal.tool,
            arguments=proposal.arguments,
            arguments_hash=proposal.arguments_hash,
            rule=proposal.rule,
            policy_version=proposal.policy_version,
            outcome=outcome,
            detail=detail,
        )

    async def _find_standing(self, name: str) -> StandingApproval:
        """Return a standing approval by its id or its proposal's, or by a beginning of one that no other has."""
        newest = await self._store.standing.newest(SEARCHED) if len(name) >= MIN_PREFIX else ()
        fitting = [one for one in newest if one.standing_id.startswith(name) or one.proposal_id.startswith(name)]
        if len(fitting) > 1:
            raise ReviewError("ambiguous_id", f"{name!r} may be more than one standing approval; give the whole id")
        if not fitting:
            hint = "`interlock proposals standing` gives those there are"
            raise ReviewError("not_found", f"there is no standing approval {name!r}; {hint}")
        return fitting[0]

    async def _find(self, proposal_id: str) -> Proposal:
        if not _ID.fullmatch(proposal_id):
            raise _not_found(proposal_id, ())
        if (found := await self._store.proposal(proposal_id)) is not None:
            return found
        newest = await self._store.proposals((), SEARCHED)
        fitting = [one for one in newest if one.proposal_id.startswith(proposal_id)]
        if len(proposal_id) < MIN_PREFIX or not fitting:
            raise _not_found(proposal_id, newest)
        # Past the newest there may be another that begins so: nobody decides on a guess.
        if len(fitting) > 1 or len(newest) >= SEARCHED:
            found_ids = f"more than one proposal: {', '.join(one.proposal_id for one in fitting[:5])}"
            raise ReviewError("ambiguous_id", f"{proposal_id!r} may be {found_ids}; give the whole id")
        return fitting[0]


def standing(proposal: Proposal, now: float) -> State:
    """Say where a proposal stands at `now`, whether or not the store has noticed that its time is over."""
    return State.EXPIRED if proposal.state in _OPEN and proposal.expires_at <= now else proposal.state


def describe(proposal: Proposal, now: float) -> JsonObject:
    """Return a proposal as operators see it: where it stands, the time left, and nothing that goes into a token."""
    shown: JsonObject = asdict(proposal)
    del shown["nonce"]
    del shown["parts"]
    state = standing(proposal, now)
    left = round(proposal.expires_at - now, 3) if state in _OPEN else None
    return shown | {"state": str(state), "seconds_left": left}


def describe_standing(standing: StandingApproval, now: float) -> JsonObject:
    """Return a standing approval as operators see it, and its `state`: live, used_up, expired or revoked."""
    shown: JsonObject = asdict(standing)
    del shown["like_key"]
    state = "live" if standing.expires_at > now else "expired"
    state = "used_up" if standing.remaining <= 0 else state
    state = "revoked" if standing.revoked_at is not None else state
    return shown | {"state": state, "vary": list(standing.vary)}


def _describe_commit(commit: Commit) -> JsonObject:
    """Return how a proposal was carried out; no outcome means that it is not known."""
    return {
        "call_id": commit.attempt_id,
        "at": commit.at,
        "outcome": commit.outcome,
        "ended_at": commit.ended_at,
        "attempts": commit.attempts,
    }


def _detail(proposal: Proposal, state: State, operator: str, reason: str) -> JsonObject:
    return {
        "proposal_id": proposal.proposal_id,
        "decision": str(state),
        "operator": operator,
        "reason": reason,
        "tool": proposal.tool,
        "server": proposal.server,
        "score": proposal.composite_score,
        **({"people": proposal.people, "approvals": proposal.approvals} if proposal.people > 1 else {}),
    }


def _granted(standing: StandingApproval) -> JsonObject:
    known = asdict(standing)
    return {name: known[name] for name in ("standing_id", "granted", "expires_at", "vary")}


def _revocation(standing: StandingApproval, operator: str, reason: str, now: float) -> AuditEvent:
    detail = {"standing_id": standing.standing_id, "operator": operator, "reason": reason}
    return AuditEvent(
        event_id=new_id(),
        kind="standing_revoked",
        time=now,
        agent=standing.principal,
        server=standing.server,
        tool=standing.tool,
        rule=standing.rule,
        detail=detail,
    )


def _standing(
    proposal: Proposal, operator: Operator, reason: str, next_calls: NextCalls, now: float
) -> StandingApproval:
    """Return the standing approval that an operator gives. Raises ReviewError where this one may not be given."""
    if proposal.people > 1:
        raise ReviewError(
            "people_required", f"{proposal.people} people approve each of these calls, so none in advance"
        )
    if not 1 <= next_calls.calls <= MAX_NEXT_CALLS or not 1 <= next_calls.seconds <= MAX_NEXT_SECONDS:
        bounds = f"1 to {MAX_NEXT_CALLS} calls, in 1 to {MAX_NEXT_SECONDS:.0f} seconds"
        raise ReviewError("bad_next", f"an approval may stand for {bounds}")
    if proposal.arguments and not proposal.parts:
        raise ReviewError("bad_next", "an older version stored this proposal; approve it alone")
    if unknown := sorted(set(next_calls.vary) - proposal.parts.keys()):
        known = ", ".join(sorted(proposal.parts)) or "none"
        raise ReviewError("bad_next", f"the call has no argument {unknown[0]!r}; its arguments are {known}")
    return StandingApproval(
        standing_id=new_id(),
        proposal_id=proposal.proposal_id,
        server=proposal.server,
        tool=proposal.tool,
        principal=proposal.principal,
        rule=proposal.rule,
        vary=tuple(sorted(set(next_calls.vary))),
        like_key=like_key(proposal.parts, next_calls.vary),
        arguments=proposal.arguments,
        operator=operator.name,
        reason=reason,
        created_at=now,
        expires_at=now + next_calls.seconds,
        granted=next_calls.calls,
        remaining=next_calls.calls,
    )


def _check_role(operator: Operator) -> None:
    # Here too, not only at the API: the command line works on the store itself where no proxy runs.
    if not operator.role.includes(Role.APPROVER):
        raise ReviewError("role_required", f"{operator.name} is a {operator.role}; an approver or admin decides")


def _check_own(proposal: Proposal, operator: Operator) -> None:
    if proposal.own == "refuse" and operator.runs(proposal.principal):
        who = f"{operator.name} runs the agent {proposal.principal}"
        raise ReviewError("own_proposal", f"{who}, and rule {proposal.rule} wants somebody else to approve")


def _checked(reason: str) -> str:
    reason = reason.strip()
    if len(reason) > MAX_REASON:
        raise ReviewError("reason_too_long", f"the reason has {len(reason)} characters; {MAX_REASON} are kept")
    return reason


def _check_open(proposal: Proposal, wanted: State, now: float) -> None:
    state = standing(proposal, now)
    if state in _DECIDABLE[wanted]:
        return
    who = f"proposal {proposal.proposal_id}"
    if state is State.EXPIRED:
        ago = f"{now - proposal.expires_at:.0f} s ago"
        raise ReviewError("expired", f"{who} expired {ago}; the agent may propose again")
    by = f" by {proposal.operator}" if proposal.operator and state in (State.APPROVED, State.REJECTED) else ""
    raise ReviewError("not_pending", f"{who} is {state}{by} already; it cannot be {wanted}")


def _not_found(proposal_id: str, newest: Sequence[Proposal]) -> ReviewError:
    close = difflib.get_close_matches(proposal_id, [one.proposal_id for one in newest], n=3)
    hint = f"close to it: {', '.join(close)}" if close else "`interlock proposals list` gives those there are"
    if newest and len(proposal_id) < MIN_PREFIX:
        hint = f"give {MIN_PREFIX} characters or more of an id"
    return ReviewError("not_found", f"there is no proposal {proposal_id!r}; {hint}")
