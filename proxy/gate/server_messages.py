"""What servers send beside the answers to calls: requests, notifications, and requests inside results.

Policy decides on them as on a client's messages, by their method. Only rules refuse here, never the default: a policy
that denies by default still lets a server log, report progress and ask, unless a rule says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from proxy.core import reasons
from proxy.core.ids import new_id
from proxy.core.model import Call, Context, Decision, Denial, InFlightCall, JsonObject, Outcome, Redaction
from proxy.gate.issued_names import union
from proxy.gate.refusal import sendable
from proxy.policy.decide import DEFAULT_DENY
from proxy.wire.jsonrpc import is_id
from proxy.wire.mcp_exchange import TASK_METHODS, input_requests, input_responses, method_of, task_ids
from proxy.wire.refusal_messages import refuse
from proxy.wire.sse_ping_carrier import TO_SERVER, carrier

if TYPE_CHECKING:
    from proxy.core.interfaces import Policy
    from proxy.gate.gate import GateParts

log = structlog.get_logger("interlock.gate")


def objection(policy: Policy, call: Call) -> Decision | None:
    """Return the decision of a rule that refuses a message for the other side; None where no rule does."""
    decision = policy.decide(call)
    if not isinstance(decision, Decision):
        raise TypeError(f"the policy gave {type(decision).__name__}, not a Decision")
    return None if decision.outcome is Outcome.ALLOW or decision.reason == DEFAULT_DENY else decision


def refused_response(policy: Policy, call: Call, params: JsonObject) -> Decision | None:
    """Return the decision that refuses one of the answers in `inputResponses`; None where none is refused."""
    for method, answer in input_responses(params):
        as_response = Call("response", call.server, call.agent, None, {"result": answer}, identity=call.identity)
        refused = objection(policy, as_response)
        if refused is None and method is not None:
            asked = answer if isinstance(answer, dict) else {}
            refused = objection(policy, Call(method, call.server, call.agent, None, asked, identity=call.identity))
        if refused is not None:
            return refused
    return None


class ServerMessages:
    """Decides on them. May raise: the caller then withholds the message."""

    def __init__(self, parts: GateParts) -> None:
        self._policy = parts.policy
        self._recorder = parts.recorder
        self._issued = parts.issued
        self._key = parts.seal_key

    def take(self, context: Context, message: JsonObject) -> list[JsonObject] | None:
        """Return what to pass on in place of a refused request or notification; None where it may pass.

        A refused request becomes a `ping` that brings the refusal back to the server; a notification is left out.
        """
        method = method_of(message)
        if method is None:
            return None
        params = message.get("params")
        refused = self._refuse(context, method, params if isinstance(params, dict) else {})
        if refused is None and (inside := self.refuse_inside(context, message)) is not None:
            refused = inside
        if refused is None:
            return None
        request_id = message.get("id")
        if not is_id(request_id):
            return []
        return [carrier([refuse(request_id, None, refused)], self._key, TO_SERVER)]  # type: ignore[arg-type]

    def refuse_inside(self, context: Context, message: JsonObject) -> Denial | None:
        """Return why a message may not be passed on for the requests that it carries inside; None where it may."""
        for method, params in input_requests(message):
            if (refused := self._refuse(context, method, params)) is not None:
                return refused
        return None

    def _refuse(self, context: Context, method: str, params: JsonObject) -> Denial | None:
        caller = context.principal
        call = Call(method, context.server, caller.agent, None, params, identity=caller.identity)
        decision = objection(self._policy(), call)
        if decision is None:
            return None
        call_id = new_id()
        self._recorder.refused_request(context, call, decision, call_id)
        said = decision.message or reasons.REASONS[decision.reason].meaning
        why = f"Rule {decision.rule}: {said.removesuffix('.')}." if decision.rule else ""
        text = f"{reasons.explain(decision.reason, f'the request {method!r} of the server', why)} Audit id: {call_id}."
        return Denial(decision.reason, sendable(text), decision.rule, call_id)

    def redactions(self, in_flight: InFlightCall, message: JsonObject) -> tuple[Redaction, ...]:
        """Return what to mask in a message beside the answer to a call: as its own method and its tasks ask, too."""
        context, method = in_flight.context, method_of(message)
        found = in_flight.decision.redactions
        if method is not None:
            params = message.get("params")
            caller, said = context.principal, params if type(params) is dict else {}
            call = Call(method, context.server, caller.agent, None, said, identity=caller.identity)
            found = union(found, self._policy().decide(call).redactions)
        for task_id in task_ids(message):
            found = union(found, self.of_task(context, task_id))
        return found

    def of_task(self, context: Context, task_id: str | None) -> tuple[Redaction, ...]:
        """Return the redactions of the call that made a task; of an unknown one, those of every rule that may apply."""
        known = self._issued.task(context, task_id) if task_id is not None else None
        return self._policy().unmatched(context.server).redactions if known is None else known

    def for_request(self, context: Context, call: Call, decision: Decision) -> tuple[Redaction, ...]:
        """Return what to mask in the answer to a request of the client's: a task's as the call that made the task."""
        if not call.method.startswith(TASK_METHODS):
            return decision.redactions
        task_id = (call.arguments or {}).get("taskId")
        return union(decision.redactions, self.of_task(context, task_id if isinstance(task_id, str) else None))

    def note_task(self, in_flight: InFlightCall, response: JsonObject) -> None:
        """Learn that a call was answered with a task."""
        if in_flight.call.method.startswith(TASK_METHODS):
            return
        for task_id in task_ids(response):
            self._issued.add_task(in_flight, task_id)
