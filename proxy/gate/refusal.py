"""What a refusal says and how it is answered: from the state of a call to the verdict on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.core import reasons
from proxy.core.model import (
    Answer,
    Call,
    Context,
    Decision,
    Denial,
    Finding,
    JsonObject,
    Kind,
    Message,
    Outcome,
    Reject,
    Verdict,
)
from proxy.wire import refusal_messages
from proxy.wire.body import MessageBatch, ParsedBody
from proxy.wire.jsonrpc import is_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.limits import Charge, Exceeded
    from proxy.core.proposals import RunningCommit
    from proxy.core.vault import Filling
    from proxy.gate.flows import FlowCheck
    from proxy.gate.outbound_scan import Carried
    from proxy.gate.tool_catalog import Objection

MAX_PLACES = 5


@dataclass(slots=True)
class CallState:
    """How far the gate has come with one message: all that is known when something fails."""

    call_id: str
    context: Context
    started: float
    length: int = 0  # bytes of the message as it came
    size: int = 0  # bytes of work; more than `length` where the message is compressed
    is_small: bool = True  # whether working on it on the event loop delays nobody
    reading: ParsedBody | None = None
    message: Message | None = None  # the message in `reading`, where it is a single one
    call: Call | None = None
    decision: Decision | None = None
    findings: tuple[Finding, ...] = ()
    clean: JsonObject | None = None  # the arguments, where it is known that there is nothing to mask in them
    blocked_by: str | None = None  # the rule that refuses for a secret
    phase: str | None = None
    called_as: str | None = None
    proposal_id: str | None = None
    task_id: str | None = None  # the task of the proxy's own whose result was asked for
    commit: RunningCommit | None = None
    recorded_reason: str | None = None  # what the event gives as its reason, in place of the decision's
    charges: tuple[Charge, ...] = ()  # what the call was charged of limits
    limits: Sequence[Exceeded] = ()  # the limits that it went, or would go, beyond
    retry_after: int | None = None  # in how many seconds there is room for it again
    objection: Objection | None = None  # what the pins have against the tool, whatever its arguments
    halted: str | None = None  # the halt that refuses it
    flows: FlowCheck | None = None  # what came before, where that matters
    external: Sequence[JsonObject] = ()  # what other services said of it
    traceparent: str | None = None  # the trace that it belongs to, once its decision is recorded
    marked: bool = False  # whether it may hold a placeholder of a credential
    filling: Filling | None = None  # the credentials that are put in when it is sent

    @property
    def method(self) -> str | None:
        return self.message.method if self.message else getattr(self.reading, "method", None)

    @property
    def subject(self) -> str:
        if self.call is not None and self.call.tool is not None:
            return f"tool {(self.called_as or self.call.tool)!r}"
        return f"{self.method!r}" if self.method else "the message"

    @property
    def phase_detail(self) -> JsonObject:
        """Return what an event says of a phase; nothing where the call is of a tool itself."""
        known = {"phase": self.phase, "called_as": self.called_as, "proposal_id": self.proposal_id}
        return {name: value for name, value in known.items() if value is not None}

    @property
    def rule(self) -> str | None:
        """The rule that refuses; a rule that allows does not."""
        if self.blocked_by is not None or self.decision is None:
            return self.blocked_by
        return self.decision.rule if self.decision.outcome is not Outcome.ALLOW else None

    def denial(self, reason: str, why: str = "") -> Denial:
        decision, rule = self.decision, self.rule
        if rule and decision and not why:
            said = decision.message if self.blocked_by is None else ""
            why = f"Rule {rule}: {said or reasons.REASONS[reason].meaning}"
            why = why if why.endswith(".") else why + "."
        return Denial(
            reason=reason,
            text=sendable(f"{reasons.explain(reason, self.subject, why)}{self._when()} Audit id: {self.call_id}."),
            rule=rule,
            audit_id=self.call_id,
            retryable=reasons.REASONS[reason].retryable
            and (reason != "limit_exceeded" or self.retry_after is not None),
            respond=decision.respond if decision else "result",
            retry_after=self.retry_after,
            source=self.flows.source if reason == "flow_denied" and self.flows is not None else None,
        )

    def _when(self) -> str:
        return f" There is room for it again in {self.retry_after} s." if self.retry_after is not None else ""


def refused_verdict(state: CallState, denial: Denial) -> Verdict:
    reading = state.reading
    if isinstance(reading, MessageBatch):
        replies = tuple(
            refusal_messages.refuse(value["id"], value.get("method"), denial, value.get("params"))
            for value in reading.values
            if is_id(value.get("id")) and "method" in value
        )
        return Answer(replies, batch=True, status=200 if replies else 202)
    status = 400 if denial.reason == "header_mismatch" else 200
    message = state.message
    if message is None:
        refused_id = getattr(reading, "id", None)
        if refused_id is None:
            return Reject(denial)
        return Answer((refusal_messages.refuse(refused_id, state.method, denial),), status=status)
    if message.kind is not Kind.REQUEST or message.id is None:
        return Answer((), status=202)
    return Answer((refusal_messages.refuse(message.id, message.method, denial, message.params),), status=status)


def withheld(reason: str, method: str | None, call_id: str | None = None, rule: str | None = None) -> Denial:
    text = f"Interlock ({reason}): {method!r} was executed, and its result is withheld. "
    text += f"Rule {rule}: {reasons.REASONS[reason].meaning}" if rule else reasons.REASONS[reason].meaning
    return Denial(reason, text + (f" Audit id: {call_id}." if call_id else ""), rule, call_id)


def may_leave(context: Context) -> bool:
    return context.egress is None or context.egress.outcome is Outcome.ALLOW


def egress_reason(context: Context) -> str:
    judged = context.egress is not None and context.egress.reason != "internal_error"
    return "egress_denied" if judged else "internal_error"


def egress_why(context: Context) -> str:
    egress = context.egress
    if egress is None:
        return ""
    said = sentence(egress.message) if egress.message else ""
    return f"Rule {egress.rule}: {said or reasons.REASONS['egress_denied'].meaning}" if egress.rule else said


def egress_denial(context: Context, audit_id: str) -> Denial:
    """Return the refusal of what may not go where `context` says."""
    reason = egress_reason(context)
    text = f"{reasons.explain(reason, f'a request to {context.server}', egress_why(context))} Audit id: {audit_id}."
    rule = context.egress.rule if context.egress else None
    return Denial(reason, sendable(text), rule, audit_id, reasons.REASONS[reason].retryable)


def carried_why(carried: Carried) -> str:
    """Return what policy objects to in what a request carries: kinds and places, never the secret."""
    rule = f"Rule {carried.redaction.rule} lets no secret go there"
    if carried.unread is not None:
        return f"{rule}, and the request cannot be scanned: {reasons.REASONS[carried.unread].meaning}"
    places = dict.fromkeys(f"{finding.detector} in {finding.path.split('.')[0]}" for finding in carried.findings)
    return f"{rule}: {', '.join(list(places)[:MAX_PLACES])}."


def carried_denial(carried: Carried, server: str, audit_id: str) -> Denial:
    """Return the refusal of a request for what it carries."""
    reason = carried.reason
    text = f"{reasons.explain(reason, f'a request to {server}', carried_why(carried))} Audit id: {audit_id}."
    return Denial(reason, sendable(text), carried.redaction.rule, audit_id, reasons.REASONS[reason].retryable)


def flow_denial(
    reason: str, server: str, audit_id: str, rule: str | None = None, why: str = "", source: JsonObject | None = None
) -> Denial:
    """Return the refusal of a plain request for the data that it may carry."""
    text = f"{reasons.explain(reason, f'a request to {server}', why)} Audit id: {audit_id}."
    return Denial(reason, sendable(text), rule, audit_id, reasons.REASONS[reason].retryable, source=source)


def credential_denial(reason: str, why: str, server: str, audit_id: str) -> Denial:
    """Return the refusal of a plain request for the placeholder of a credential in it."""
    text = f"{reasons.explain(reason, f'a request to {server}', why)} Audit id: {audit_id}."
    return Denial(reason, sendable(text), None, audit_id, reasons.REASONS[reason].retryable)


def sendable(text: str) -> str:
    """Replace what a header's odd bytes left in `text` and no JSON can carry."""
    return text.encode("utf-8", "replace").decode()


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
