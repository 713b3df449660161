"""Weighs one call: what policy, pins, flows and incoming rules say of it, and what is masked in it.

Does no I/O of its own and waits for nothing, so a large call is weighed in a thread. The request gate carries out what
comes of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.core.model import Call, Decision, Message, Outcome
from proxy.gate.argument_masking import ArgumentMasking
from proxy.gate.halts import why_halted
from proxy.gate.incoming import REASON as INJECTED
from proxy.gate.server_messages import ServerMessages, refused_response
from proxy.wire.mcp_exchange import TASK_METHODS

if TYPE_CHECKING:
    from proxy.core.interfaces import Policy
    from proxy.gate.gate import GateParts
    from proxy.gate.refusal import CallState

HOLD = "hold"  # the phase of a call that waits for people by itself

type Refusal = tuple[str, str]  # the reason code, and what is said of it beside the rule's own words


class CallJudge:
    """Decides on the calls of one process. Safe to share between threads."""

    def __init__(self, parts: GateParts) -> None:
        self._policy = parts.policy
        self._masking = ArgumentMasking(parts)
        self._catalog = parts.catalog
        self._two_phase = parts.two_phase
        self._messages = ServerMessages(parts)
        self._halts = parts.halts
        self._incoming = parts.incoming
        self._flows = parts.flows

    def halted(self, state: CallState) -> str | None:
        """Return why the call is halted, if it is."""
        if not self._halts.active or state.call is None or (halt := self._halts.find(state.call)) is None:
            return None
        state.halted = halt.halt_id
        return why_halted(halt)

    def look_up(self, state: CallState) -> None:
        """Note what the server said of the tool, and what the pins have against it. Raises PinsUnavailableError."""
        call = state.call
        assert call is not None
        if self._catalog is None or call.tool is None:
            return
        hints, state.objection = self._catalog.look_up(state.context, call.tool, self._policy().pins)
        if hints is not call.hints:
            state.call = Call(
                *(call.method, call.server, call.agent, call.tool, call.arguments, hints, call.history),
                *(call.identity, call.answers),
            )

    def weigh(self, message: Message, state: CallState) -> tuple[Refusal | None, Message]:
        """Decide on a call and mask its arguments; return why it is refused, if it is, and what would be forwarded."""
        if (refusal := self._judge(state)) is not None:
            return refusal, message
        masked = self._masking.mask(message, state)
        return (("secret_found", "") if state.blocked_by is not None else None), masked

    def _judge(self, state: CallState) -> Refusal | None:
        """Let the policy and the pins decide; return why the call is refused, if it is."""
        policy, call = self._policy(), state.call
        assert call is not None
        decision = policy.decide(call)
        if not isinstance(decision, Decision):
            raise TypeError(f"the policy gave {type(decision).__name__}, not a Decision")
        if decision.outcome is Outcome.EXTERNAL:
            # The gate asks, and comes back with the answers; without any, this is the refusal.
            state.decision = decision
            return decision.reason, ""
        if call.method.startswith(TASK_METHODS):
            decision = replace(decision, redactions=self._messages.for_request(state.context, call, decision))
        if state.flows is not None and decision.outcome is not Outcome.DENY and self._flows is not None:
            decision = self._flows.judge(state, decision)
        state.decision = decision
        # Named one by one: an outcome that is none of these two, such as one that a later version adds, refuses.
        if decision.outcome is not Outcome.ALLOW and decision.outcome is not Outcome.TWO_PHASE:
            return decision.reason, ""
        return self._objected(policy, call, decision, state)

    def _objected(self, policy: Policy, call: Call, decision: Decision, state: CallState) -> Refusal | None:
        """Return why a call is refused that no rule on tools denies, if it is."""
        if (refused := self._refused_input(policy, call, state)) is not None:
            state.decision = replace(refused, redactions=())
            return refused.reason, ""
        if (objection := state.objection) is not None:
            state.decision = replace(decision, outcome=Outcome.DENY, reason=objection.reason, rule=None)
            return objection.reason, objection.why
        if (rule := self._incoming.objects(state.context, call, state.call_id)) is not None:
            state.decision = replace(decision, outcome=Outcome.DENY, reason=INJECTED, rule=rule)
            return INJECTED, "It would tell another model what to do."
        if decision.outcome is Outcome.TWO_PHASE and state.phase in (None, HOLD):
            return self.wants_proposal(state)
        return None

    def _refused_input(self, policy: Policy, call: Call, state: CallState) -> Decision | None:
        """Return the decision that refuses an answer to the server inside the request, if one does."""
        params = state.message.value.get("params") if state.message is not None else None
        if not isinstance(params, dict) or "inputResponses" not in params:
            return None
        return refused_response(policy, call, params)

    def wants_proposal(self, state: CallState) -> Refusal | None:
        """Return the refusal of a direct call that only a commit may make."""
        decision = state.decision
        if decision is None or decision.outcome is not Outcome.TWO_PHASE or self._is_held(decision):
            return None
        return "two_phase_required", self._two_phase.how_to_propose(state) if self._two_phase else ""

    def _is_held(self, decision: Decision) -> bool:
        return self._two_phase is not None and decision.terms is not None and decision.terms.how != "propose"
