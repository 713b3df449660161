"""Decide recorded calls again, to show what a candidate policy would change. Pure, no I/O.

Only calls that a policy decided are decided again. A message that was refused for its form, its
destination or a failure never reached the rules and is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from proxy.core.external import ExternalAnswer
from proxy.core.model import Call, Hints, Outcome
from proxy.core.rule_proposals import HOST as RULE_HOST
from proxy.policy.past import Past
from proxy.policy.rule_parts import as_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from proxy.core.identity import Identity
    from proxy.core.limits import Charge
    from proxy.core.model import Decision
    from proxy.policy.decide import CompiledPolicy

# Reasons of refusals by a policy's rules; any other refusal has another cause.
DENIALS: Final = frozenset(
    {
        *("flow_denied", "policy_denied", "default_deny", "policy_error", "wrong_type", "ambiguous_value"),
        *("limit_amount", "limit_exceeded", "external_denied"),
    }
)
TWO_PHASE: Final = "two_phase_required"
COMMITTED: Final = "proposal_committed"
NOT_REQUIRED: Final = "proposal_not_required"
_MASK: Final = re.compile(r"\[(?:secret|pii|custom):[^\[\]]+\]")


@dataclass(frozen=True, slots=True)
class ChangedDecision:
    """A recorded call that the candidate decides differently.

    `masked` says that rules tested arguments that were recorded with masks in place of
    secrets, so the decision on the real call may differ.
    """

    call_id: str | None
    time: float | None
    agent: str
    server: str
    method: str
    tool: str | None
    was: str
    was_reason: str | None
    was_rule: str | None
    now: str
    now_reason: str
    now_rule: str | None
    masked: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """What changed when recorded calls were decided again; `masked` of the decided ones rest on masked arguments."""

    policy_version: str
    decided: int
    passed_over: int
    masked: int
    changes: tuple[ChangedDecision, ...]

    def data(self) -> dict[str, Any]:
        """Return the figures as a JSON object, without the changes themselves."""
        names = ("policy_version", "decided", "passed_over", "masked")
        return {name: getattr(self, name) for name in names} | {"changed": len(self.changes)}


def replay(policy: CompiledPolicy, events: Iterable[Mapping[str, Any]]) -> Replay:
    """Decide the calls of `decided` events again by `policy`."""
    decided = passed_over = masked = 0
    pasts: dict[str, Past] = {}
    changes: list[ChangedDecision] = []
    charges = PastCharges()
    # Limits count in the order of time; without any, events may be as many as a stream brings.
    for event in sorted(events, key=lambda e: e.get("time") or 0.0) if policy.limits else events:
        # At the host of proposals a policy's default decides nothing.
        if event.get("kind") != "decided" or event.get("server") == RULE_HOST:
            continue
        was = recorded_outcome(event)
        if was is None:
            passed_over += 1
            continue
        decided += 1
        past = pasts.setdefault(str(event.get("agent")), Past())
        past.now = event.get("time") or past.now
        change = _decide_again(policy, event, was, past, charges)
        masked += change.masked
        if change.now != was:
            changes.append(change)
    return Replay(policy.version, decided, passed_over, masked, tuple(changes))


def recorded_outcome(event: Mapping[str, Any]) -> str | None:
    """Return what the policy decided then; None where something else decided."""
    decision, reason = event.get("decision"), event.get("reason")
    if reason == NOT_REQUIRED or (decision == "allow" and reason != COMMITTED):
        return "allow"
    if decision == "propose" or reason in (COMMITTED, TWO_PHASE):
        return "two_phase"
    return "deny" if reason in DENIALS else None


def _decide_again(
    policy: CompiledPolicy, event: Mapping[str, Any], was: str, past: Past, charges: PastCharges
) -> ChangedDecision:
    call = replace(recorded_call(event), history=past)
    call = _with_answers(policy, call, event)
    decision = charges.charge(policy, call, _by_session(policy, call, past, policy.decide(call)), event)
    if was == "allow":
        # What a detector finds in a result is not recorded, so labels that depend on one are left out.
        applying = policy.applying(call)
        labels = [word for label in applying.labels if label.rule.detectors is None for word in label.labels]
        past.add(call, event.get("call_id") or "", [*labels, *(step.label for step in applying.steps_of(call))])
    return ChangedDecision(
        *(event.get("call_id"), event.get("time"), call.agent, call.server, call.method, call.tool),
        *(was, event.get("reason"), event.get("rule")),
        *(decision.outcome.value, decision.reason, decision.rule),
        rests_on_masks(policy, call),
    )


def _with_answers(policy: CompiledPolicy, call: Call, event: Mapping[str, Any]) -> Call:
    """Return a call with what services answered then; nobody is asked again, so other questions have no answer."""
    asks = policy.decide(call).asks
    told = {(one["rule"], one["service"]): one["answer"] for one in (event.get("detail") or {}).get("external") or ()}
    known = {ask: told[ask.rule, ask.service] for ask in asks if (ask.rule, ask.service) in told}
    if not known:
        return call
    answers = {ask: ExternalAnswer(None if said == "allow" else str(said)) for ask, said in known.items()}
    return replace(call, answers=answers)


class PastCharges:
    """What recorded calls would have used up of a policy's limits. How many were under way at once is not known."""

    def __init__(self) -> None:
        self._charged: dict[str, list[tuple[float, int]]] = {}

    def charge(self, policy: CompiledPolicy, call: Call, decision: Decision, event: Mapping[str, Any]) -> Decision:
        """Charge a call that goes through to its limits; return the decision that they lead to."""
        now, used = event.get("time") or 0.0, {}
        charges = [(self._uses(charge, event), charge) for charge in decision.charges if charge.seconds]
        for uses, charge in charges:
            uses[:] = [one for one in uses if one[0] > now - charge.seconds]
            total = sum(amount for _, amount in uses)
            if total + charge.amount > charge.most:
                used[charge.limit] = total
        beyond = policy.decide_beyond(call, used) if used else decision
        # What people would have said is not known: such a call counts, as one that they approve does.
        if beyond.outcome is not Outcome.DENY:
            for uses, charge in charges:
                uses.append((now, charge.amount))
        return beyond

    def _uses(self, charge: Charge, event: Mapping[str, Any]) -> list[tuple[float, int]]:
        session = f" {event.get('session')}" if charge.by_session else ""
        return self._charged.setdefault(charge.budget + session, [])


def _by_session(policy: CompiledPolicy, call: Call, past: Past, decision: Decision) -> Decision:
    """Return the decision once flows by session are considered; those by content need results, which nobody kept."""
    for flow in policy.applying(call).flows if decision.outcome is Outcome.ALLOW else ():
        stops = flow.rule.action != "report" and flow.rule.mode == "enforce" and not flow.by_content
        if stops and not flow.spares(call) and past.latest(flow.labels, flow.rule.within) is not None:
            return replace(decision, outcome=Outcome(flow.rule.action), reason="flow_denied", rule=flow.rule.id)
    return decision


def recorded_call(event: Mapping[str, Any]) -> Call:
    """Return the call of an event. Only a response is recorded without a method."""
    arguments, detail = event.get("arguments"), event.get("detail") or {}
    return Call(
        event.get("method") or "response",
        event.get("server") or "",
        event.get("agent") or "",
        event.get("tool"),
        arguments if isinstance(arguments, dict) else None,
        Hints.read(detail.get("annotations")),
        identity=_recorded_identity(detail.get("identity")),
    )


def _recorded_identity(told: Any) -> Identity | None:
    """Return what an event tells of an agent; of its claims, it has those that the settings choose."""
    if not isinstance(told, dict):
        return None
    claims: dict[str, Any] = {"iss": told.get("issuer"), "sub": told.get("subject"), **(told.get("claims") or {})}
    for actor in reversed(told.get("act") or ()):
        claims["act"] = {"sub": actor, **({"act": claims["act"]} if "act" in claims else {})}
    return as_identity(claims, str(told.get("provider", "")))


def rests_on_masks(policy: CompiledPolicy, call: Call) -> bool:
    """Return whether rules test the arguments of a call that was recorded with masks in them."""
    if not any(_MASK.search(text) for text in _texts(call.arguments)):
        return False
    return any(compiled.rule.when is not None for compiled in policy.rules_for(call))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield key
            yield from _texts(child)
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)
