"""The one order of things, for every transport alike.

Out:  parse → decide → redact → record → verdict.
Back: result → redact → record.

Transport-free. Whatever fails on the way out, in whatever step, is a refusal;
the methods here do not raise.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog
import uuid_utils

from proxy import reasons
from proxy.catalogue import TOOLS_LIST, is_tool_list
from proxy.errors import AuditUnavailableError, WireError
from proxy.model import (
    Answer,
    AuditEvent,
    Call,
    Context,
    Decision,
    Denial,
    Exchange,
    Finding,
    Forward,
    Json,
    JsonObject,
    Kind,
    Message,
    MessageId,
    Outcome,
    Pass,
    Reject,
    Verdict,
)
from proxy.wire import answers
from proxy.wire.body import Batch, Foreign, Reading, Refused, read_body
from proxy.wire.jsonrpc import is_id, respell, serialise
from proxy.wire.mcp import Headers, check_headers, mirrored_headers, parse_tool_call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.catalogue import Catalogue, ToolFinding
    from proxy.model import EventSink, Policy, Redactor

log = structlog.get_logger("interlock.gate")

MAX_OPEN = 10_000
# Messages that make a server do nothing: their events need not be awaited.
QUIET = ("initialize", "ping", "notifications/", "logging/", "server/discover")
QUIET_ENDINGS = ("/list",)


class Gate:
    """Decides what passes. One per process; safe for concurrent calls on one event loop."""

    def __init__(
        self,
        *,
        policy: Callable[[], Policy],
        redactor: Redactor,
        sink: EventSink,
        body_limit: int = 1 << 26,
        clock: Callable[[], float] = time.time,
        catalogue: Catalogue | None = None,
    ) -> None:
        self._policy = policy
        self._catalogue = catalogue
        self._redactor = redactor
        self._sink = sink
        self._body_limit = body_limit
        self._clock = clock
        self._open: OrderedDict[str, Exchange] = OrderedDict()
        self._by_session: dict[tuple[str, str, MessageId], Exchange] = {}

    async def inspect(self, body: bytes, context: Context, headers: Headers = ()) -> Verdict:
        """Decide what becomes of `body`, sent by a client. Never raises."""
        step = _Step(new_id(), context, self._clock())
        try:
            return await self._inspect(body, headers, step)
        except Exception as error:  # noqa: BLE001  the gate's one boundary: any failure refuses
            return await self._fail(step, error)

    async def _inspect(self, body: bytes, headers: Headers, step: _Step) -> Verdict:
        reading = read_body(
            body,
            content_types=[value for name, value in headers if name.lower() == "content-type"],
            encodings=[value for name, value in headers if name.lower() == "content-encoding"],
            limit=self._body_limit,
        )
        if isinstance(reading, Foreign):
            return self._let_out(step.context)
        step.reading = reading
        if isinstance(reading, Refused):
            return await self._refuse(step, reading.reason, why=_sentence(reading.detail))
        if isinstance(reading, Batch):
            return await self._refuse(step, "batch")
        try:
            check_headers(reading.message, headers)
        except WireError as error:
            return await self._refuse(step, error.reason, why=_sentence(error.detail))
        return await self._decide(reading.message, headers, step)

    async def _decide(self, message: Message, headers: Headers, step: _Step) -> Verdict:
        call = step.call = as_call(message, step.context)
        if not _may_leave(step.context):
            step.decision = step.context.egress
            return await self._refuse(step, _egress_reason(step.context), _why(step.context))
        decision = self._policy().decide(call)
        if not isinstance(decision, Decision):
            raise TypeError(f"the policy gave {type(decision).__name__}, not a Decision")
        step.decision = decision
        if decision.outcome in (Outcome.ALLOW, Outcome.TWO_PHASE) and self._catalogue is not None:
            objection = self._catalogue.objection(call)
            if objection is not None:
                step.decision = replace(decision, outcome=Outcome.DENY, reason=objection.reason, rule=None)
                return await self._refuse(step, objection.reason, why=objection.why)
        if decision.outcome is Outcome.TWO_PHASE:
            return await self._refuse(step, "two_phase_required")
        if decision.outcome is not Outcome.ALLOW:
            return await self._refuse(step, decision.reason)
        masked = self._redact(message, step)
        if step.blocked_by is not None:
            return await self._refuse(step, "secret_found")
        mirrored = mirrored_headers(message, masked, headers) if masked is not message else {}
        await self._record(step, masked)
        return Forward(masked, self._begin(masked, step), mirrored)

    def _let_out(self, context: Context) -> Verdict:
        """Let what is not MCP go where policy lets it."""
        if not _may_leave(context):
            return Reject(self.refuse_egress("request_refused", context), 403)
        if context.egress is not None and context.egress.shadow:
            self._note("request_shadowed", context.egress.reason, context, "allow")
        return Pass()

    def refuse_egress(self, kind: str, context: Context) -> Denial:
        """Record that something may not go where `context` says, and give the refusal."""
        reason = _egress_reason(context)
        audit_id = self.note(kind, reason, context)
        text = f"{reasons.explain(reason, f'a request to {context.server}', _why(context))} Audit id: {audit_id}."
        rule = context.egress.rule if context.egress else None
        return Denial(reason, _sendable(text), rule, audit_id, reasons.REASONS[reason].retryable)

    def _redact(self, message: Message, step: _Step) -> Message:
        """Mask the arguments as the decision asks; note in `step` what was found."""
        assert step.decision is not None
        for redaction in step.decision.redactions:
            if "arguments" not in redaction.on:
                continue
            part = "params" if message.kind is not Kind.RESPONSE else "result"
            masked, found = self._redactor.mask(message.value.get(part), redaction.detectors)
            step.findings += found
            if not found or redaction.action == "report":
                continue
            if redaction.action == "deny" or not all(finding.maskable for finding in found):
                step.blocked_by = step.blocked_by or redaction.rule
            else:
                message = _with_part(message, part, masked)
        return message

    async def _record(self, step: _Step, message: Message) -> None:
        event = self._decided(step)
        if _is_quiet(message):
            self._sink.record_later(event)
        else:
            await self._sink.record(event)
        _log_decision(event)

    def _begin(self, message: Message, step: _Step) -> Exchange:
        assert step.decision is not None
        assert step.call is not None
        exchange = Exchange(step.call_id, message, step.context, step.call, step.decision, step.started, self._clock())
        if message.kind is Kind.REQUEST:
            self._open[exchange.call_id] = exchange
            if key := _session_key(exchange):
                self._by_session[key] = exchange
            while len(self._open) > MAX_OPEN:
                self.abandon(next(iter(self._open.values())), "unknown")
        return exchange

    async def _refuse(self, step: _Step, reason: str, why: str = "") -> Verdict:
        denial = step.denial(reason, why)
        event = self._decided(step, reason)
        try:
            await self._sink.record(event)
        except AuditUnavailableError as error:
            log.exception("a refusal could not be recorded", reason=reason, error=str(error))
        _log_decision(event)
        return _verdict(step, denial)

    async def _fail(self, step: _Step, error: Exception) -> Verdict:
        reason = "audit_unavailable" if isinstance(error, AuditUnavailableError) else "internal_error"
        log.error("refusing after a failure", call_id=step.call_id, reason=reason, exc_info=error)
        try:
            await self._sink.record(self._decided(step, reason, with_arguments=False))
        except Exception as second:
            log.exception("a refusal could not be recorded", call_id=step.call_id, error=str(second))
        return _verdict(step, step.denial(reason))

    def _decided(self, step: _Step, reason: str | None = None, *, with_arguments: bool = True) -> AuditEvent:
        call, decision, message = step.call, step.decision, step.message
        arguments = call.arguments if call and with_arguments else None
        return AuditEvent(
            event_id=new_id(),
            kind="decided",
            time=self._clock(),
            call_id=step.call_id,
            jsonrpc_id=message.id if message else None,
            method=step.method,
            tool=call.tool if call else None,
            arguments=self._masked(arguments),
            arguments_hash=_digest(serialise(arguments)) if arguments is not None else None,
            decision="deny" if reason else "allow",
            reason=reason or (decision.reason if decision else None),
            rule=decision.rule if decision and not reason else step.rule,
            rules=decision.matched if decision else (),
            shadow_rules=_shadow(decision, step.context.egress),
            policy_version=decision.policy_version if decision else None,
            redactions=step.findings,
            gate_ms=_ms(self._clock() - step.started),
            detail=_egress_detail(step.context),
            **_origin(step.context),
        )

    def _masked(self, value: Json) -> Json:
        return self._redactor.mask(value, RECORDED)[0] if value is not None else None

    def find(self, context: Context, message_id: object) -> Exchange | None:
        """Give the call under way in this session that a response of this id answers."""
        if context.session is None or not is_id(message_id):
            return None
        return self._by_session.get((context.server, context.session, message_id))  # type: ignore[arg-type]

    def observe(self, exchange: Exchange, value: JsonObject, raw: bytes) -> JsonObject:
        """Take the response to `exchange`: give it masked, and record how the call ended.

        `raw` is the response as it came. Gives `value` itself where nothing was
        changed, and a refusal where that failed. Of a tool list it gives what
        the agent may see.
        """
        result = value.get("result")
        is_error = result.get("isError") is True if isinstance(result, dict) else None
        outcome = "error" if "error" in value else "tool_error" if is_error else "done"
        try:
            shown = value
            if exchange.message.method == TOOLS_LIST:
                shown = self._show_tools(exchange.context, value, exchange.message.params.get("cursor") is not None)
            masked, findings = self._mask_result(exchange, shown)
        except Exception as error:
            log.exception("a result could not be rewritten", call_id=exchange.call_id, error=str(error))
            self._close(exchange, outcome="unreadable", result_size=len(raw))
            return self._withheld(exchange, value.get("id", exchange.message.id), "internal_error")
        if masked is None:
            self._close(exchange, outcome="withheld", result_size=len(raw), redactions=findings)
            return self._withheld(exchange, value.get("id", exchange.message.id), "secret_found")
        delivered = raw if masked is value else respell(masked)
        self._close(
            exchange,
            outcome=outcome,
            is_error=is_error,
            result_size=len(raw),
            result_digest=_digest(delivered),
            redactions=findings,
        )
        return masked

    def overhear(self, context: Context, value: JsonObject) -> JsonObject:
        """Take a response to no call under way, such as a stream's replay: a tool list is cut as any other."""
        if not is_tool_list(value):
            return value
        try:
            return self._show_tools(context, value, continued=False)
        except Exception as error:
            log.exception("a tool list is withheld", server=context.server, error=str(error))
            return answers.refuse(value["id"], TOOLS_LIST, _withheld("internal_error", TOOLS_LIST))

    def _show_tools(self, context: Context, value: JsonObject, continued: bool) -> JsonObject:  # noqa: FBT001
        """Give a tool list with what the agent may see, and record what was found in it."""
        if self._catalogue is None or not isinstance(value.get("result"), dict):
            return value
        result, findings = self._catalogue.show(context, value["result"], continued=continued)
        for finding in findings:
            self._report(context, finding)
        return {**value, "result": result}

    def _report(self, context: Context, finding: ToolFinding) -> None:
        log.warning(finding.kind, server=context.server, tool=finding.tool, **finding.detail)
        self._record_later(
            AuditEvent(
                event_id=new_id(),
                kind=finding.kind,
                time=self._clock(),
                tool=finding.tool,
                reason=finding.reason,
                decision="deny" if finding.enforced else None,
                detail={"server": context.server, "tool": finding.tool, **finding.detail},
                **_origin(context),
            )
        )

    def _mask_result(self, exchange: Exchange, value: JsonObject) -> tuple[JsonObject | None, tuple[Finding, ...]]:
        """Give the response masked, or None where it may not be given on, and what was found."""
        findings: tuple[Finding, ...] = ()
        result: JsonObject | None = value
        for redaction in exchange.decision.redactions:
            if "result" not in redaction.on or result is None:
                continue
            masked, found = self._redactor.mask(result, redaction.detectors)
            findings += found
            if not found or redaction.action == "report":
                continue
            if not isinstance(masked, dict):
                raise TypeError(f"masking made {type(masked).__name__} of an object")
            forwardable = redaction.action == "mask" and all(finding.maskable for finding in found)
            result = masked if forwardable else None
        return result, findings

    def unreadable(self, exchange: Exchange) -> JsonObject | None:
        """Say what to answer in place of a response that cannot be read; None lets it pass.

        It may pass only where it is no tool list, and no rule asks for results to be masked.
        """
        message = exchange.message
        self._close(exchange, outcome="unreadable")
        masking = any("result" in r.on and r.action != "report" for r in exchange.decision.redactions)
        if message.id is None or not (masking or message.method == TOOLS_LIST):
            return None
        return self._withheld(exchange, message.id, "unreadable_response")

    def _withheld(self, exchange: Exchange, message_id: Any, reason: str) -> JsonObject:
        """Answer in place of a response that may not be given on."""
        message = exchange.message
        denial = _withheld(reason, message.method, exchange.call_id)
        return answers.refuse(message_id, message.method, denial, message.params)

    def abandon(self, exchange: Exchange, outcome: str) -> None:
        """Record that no answer to `exchange` was seen."""
        self._close(exchange, outcome=outcome)

    def note(self, kind: str, reason: str, context: Context, **detail: Any) -> str:
        """Record something that was refused outside any call; give the event's id."""
        log.warning(kind, reason=reason, agent=context.principal.agent, server=context.server, **detail)
        return self._note(kind, reason, context, "deny", detail)

    def _note(self, kind: str, reason: str, context: Context, decision: str, detail: JsonObject | None = None) -> str:
        event_id, egress = new_id(), context.egress
        self._record_later(
            AuditEvent(
                event_id=event_id,
                kind=kind,
                time=self._clock(),
                reason=reason,
                decision=decision,
                rule=egress.rule if egress else None,
                shadow_rules=egress.shadow if egress else (),
                policy_version=egress.policy_version if egress else None,
                detail={**_egress_detail(context), **(detail or {})},
                **_origin(context),
            )
        )
        return event_id

    def _close(self, exchange: Exchange, **fields: Any) -> None:
        if exchange.closed:
            return
        exchange.closed = True
        message, now = exchange.message, self._clock()
        self._open.pop(exchange.call_id, None)
        key = _session_key(exchange)
        if key and self._by_session.get(key) is exchange:
            del self._by_session[key]
        self._record_later(
            AuditEvent(
                event_id=new_id(),
                kind="completed",
                time=now,
                call_id=exchange.call_id,
                jsonrpc_id=message.id,
                method=message.method,
                tool=exchange.call.tool,
                upstream_ms=_ms(now - exchange.forwarded),
                total_ms=_ms(now - exchange.started),
                policy_version=exchange.decision.policy_version,
                **_origin(exchange.context),
                **fields,
            )
        )

    def _record_later(self, event: AuditEvent) -> None:
        try:
            self._sink.record_later(event)
        except Exception as error:
            log.exception("an event could not be recorded", kind=event.kind, call_id=event.call_id, error=str(error))

    @property
    def under_way(self) -> int:
        """How many calls have been forwarded and not answered."""
        return len(self._open)

    def close(self) -> None:
        """Record every call still under way as ended with an unknown outcome."""
        while self._open:
            self.abandon(next(iter(self._open.values())), "unknown")


# What is masked in every record, whatever the policy says.
RECORDED: Sequence[str] = ("secrets", "pii")


class _Step:
    """How far one message has come; whatever is known when something fails."""

    def __init__(self, call_id: str, context: Context, started: float) -> None:
        self.call_id = call_id
        self.context = context
        self.started = started
        self.reading: Reading | None = None
        self.call: Call | None = None
        self.decision: Decision | None = None
        self.findings: tuple[Finding, ...] = ()
        self.blocked_by: str | None = None

    @property
    def message(self) -> Message | None:
        return getattr(self.reading, "message", None)

    @property
    def method(self) -> str | None:
        return self.message.method if self.message else getattr(self.reading, "method", None)

    @property
    def subject(self) -> str:
        if self.call is not None and self.call.tool is not None:
            return f"tool {self.call.tool!r}"
        return f"{self.method!r}" if self.method else "the message"

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
            text=_sendable(f"{reasons.explain(reason, self.subject, why)} Audit id: {self.call_id}."),
            rule=rule,
            audit_id=self.call_id,
            retryable=reasons.REASONS[reason].retryable,
            respond=decision.respond if decision else "result",
        )


def as_call(message: Message, context: Context) -> Call:
    """Give what policy decides on."""
    tool_call = parse_tool_call(message)
    agent, server = context.principal.agent, context.server
    if tool_call is not None:
        return Call(message.method or "", server, agent, tool_call.tool, tool_call.arguments)
    if message.kind is Kind.RESPONSE:
        return Call("response", server, agent, None, message.value)
    return Call(message.method or "", server, agent, None, message.params)


def new_id() -> str:
    """Give a time-ordered unique id."""
    return str(uuid_utils.uuid7())


def _verdict(step: _Step, denial: Denial) -> Verdict:
    reading = step.reading
    if isinstance(reading, Batch):
        replies = tuple(
            answers.refuse(value["id"], value.get("method"), denial, value.get("params"))
            for value in reading.values
            if is_id(value.get("id")) and "method" in value
        )
        return Answer(replies, batch=True, status=200 if replies else 202)
    status = 400 if denial.reason == "header_mismatch" else 200
    message = step.message
    if message is None:
        refused_id = getattr(reading, "id", None)
        if refused_id is None:
            return Reject(denial)
        return Answer((answers.refuse(refused_id, step.method, denial),), status=status)
    if message.kind is not Kind.REQUEST or message.id is None:
        return Answer((), status=202)
    return Answer((answers.refuse(message.id, message.method, denial, message.params),), status=status)


def _withheld(reason: str, method: str | None, call_id: str | None = None) -> Denial:
    text = f"Interlock ({reason}): {method!r} was executed, and its result is withheld. "
    text += reasons.REASONS[reason].meaning
    return Denial(reason, text + (f" Audit id: {call_id}." if call_id else ""), audit_id=call_id)


def _session_key(exchange: Exchange) -> tuple[str, str, MessageId] | None:
    session, message_id = exchange.context.session, exchange.message.id
    if session is None or message_id is None:
        return None
    return exchange.context.server, session, message_id


def _with_part(message: Message, part: str, masked: Json) -> Message:
    """Give `message` with a masked part. Raises where it is no longer a call of the same tool."""
    changed = Message(message.kind, {**message.value, part: masked}, message.method, message.id)
    before, after = parse_tool_call(message), parse_tool_call(changed)
    if not isinstance(masked, dict) or (before and before.tool) != (after and after.tool):
        raise ValueError("masking changed what is called")
    serialise(masked)
    return changed


def _is_quiet(message: Message) -> bool:
    method = message.method or ""
    return method.startswith(QUIET) or method.endswith(QUIET_ENDINGS)


def _may_leave(context: Context) -> bool:
    return context.egress is None or context.egress.outcome is Outcome.ALLOW


def _egress_reason(context: Context) -> str:
    judged = context.egress is not None and context.egress.reason != "internal_error"
    return "egress_denied" if judged else "internal_error"


def _why(context: Context) -> str:
    egress = context.egress
    if egress is None:
        return ""
    said = _sentence(egress.message) if egress.message else ""
    return f"Rule {egress.rule}: {said or reasons.REASONS['egress_denied'].meaning}" if egress.rule else said


def _egress_detail(context: Context) -> JsonObject:
    """Give what exactly policy objected to in a destination; nothing where it did not."""
    return {} if context.egress is None or _may_leave(context) else {"egress": context.egress.reason}


def _shadow(decision: Decision | None, egress: Decision | None) -> tuple[str, ...]:
    told = (*(decision.shadow if decision else ()), *(egress.shadow if egress else ()))
    return tuple(dict.fromkeys(told))


def _origin(context: Context) -> dict[str, Any]:
    return {
        "agent": context.principal.agent,
        "authenticated": context.principal.authenticated,
        "server": context.server,
        "transport": context.transport,
        "revision": context.revision,
        "session": context.session,
    }


def _log_decision(event: AuditEvent) -> None:
    log.info(
        "decided",
        call_id=event.call_id,
        agent=event.agent,
        server=event.server,
        method=event.method,
        tool=event.tool,
        decision=event.decision,
        reason=event.reason,
        rule=event.rule,
        ms=event.gate_ms,
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _sendable(text: str) -> str:
    """Replace what a header's odd bytes left in `text` and no JSON can carry."""
    return text.encode("utf-8", "replace").decode()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
