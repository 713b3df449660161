"""The one order of things, for every transport alike.

Out:  parse → decide → redact → two-phase → record → verdict.
Back: result → redact → record (way_back.py).

Transport-free. Whatever fails on the way out, in whatever step, is a refusal;
the methods here do not raise.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from proxy.core.ids import new_id
from proxy.core.model import UNSAID, Call, Decision, Forward, InFlightCall, Kind, Message, Outcome, Pass, Reject
from proxy.errors import AuditUnavailableError, PhaseError, StoreUnavailableError, WireError
from proxy.gate.event_recorder import RECORDED, EventRecorder
from proxy.gate.in_flight import InFlightCalls, without_arguments
from proxy.gate.outbound_scan import Carried, OutboundScanner, UploadWatch
from proxy.gate.refusal import (
    CallState,
    as_call,
    carried_denial,
    carried_why,
    egress_denial,
    egress_reason,
    egress_why,
    may_leave,
    refused_verdict,
    sentence,
)
from proxy.gate.response import WayBack
from proxy.gate.two_phase import TwoSteps
from proxy.wire.body import READ_AT_ONCE, MessageBatch, NotMcp, RefusedBody, SingleMessage, read_body, read_lines
from proxy.wire.content_coding import sniff_coding
from proxy.wire.jsonrpc import serialise
from proxy.wire.mcp import check_headers, mirrored_headers, parse_tool_call, read_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.interfaces import EventSink, Policy, Redactor, SharedCalls
    from proxy.core.model import Context, Denial, Json, Redaction, Verdict
    from proxy.gate.phases import Phases
    from proxy.gate.tool_catalog import ToolCatalog
    from proxy.wire.body import ParsedBody
    from proxy.wire.mcp import Headers, RequestHead

log = structlog.get_logger("interlock.gate")

# Messages that make a server do nothing: their events need not be awaited.
QUIET = frozenset(
    {
        "initialize",
        "ping",
        "server/discover",
        "logging/setLevel",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "tasks/list",
    }
)
# Transports whose messages some servers, or bridges before them, read line by line.
LINE_READ = ("websocket", "stdio")
READERS = 2


class Gate(WayBack):
    """Decides what passes. One per process; safe for concurrent calls on one event loop."""

    def __init__(
        self,
        *,
        policy: Callable[[], Policy],
        redactor: Redactor,
        sink: EventSink,
        body_limit: int = 1 << 26,
        clock: Callable[[], float] = time.time,
        catalog: ToolCatalog | None = None,
        phases: Phases | None = None,
        shared_calls: SharedCalls | None = None,
    ) -> None:
        # What a call took is no matter of the wall clock, which may jump.
        timer = time.monotonic if clock is time.time else clock
        recorder = EventRecorder(sink, redactor, clock, self.in_thread, timer)
        two_steps = TwoSteps(phases, catalog, recorder) if phases and catalog else None
        super().__init__(
            policy, redactor, catalog, InFlightCalls(shared_calls=shared_calls), recorder, two_steps, timer
        )
        self._body_limit = body_limit
        self._outbound = OutboundScanner(redactor, body_limit)
        # Threads of their own: looking up names must not queue behind large bodies.
        self._readers = ThreadPoolExecutor(READERS, "interlock-reader")

    async def inspect(self, body: bytes, context: Context, headers: Headers = (), before: str = "") -> Verdict:
        """Decide what becomes of `body`, sent by a client. Never raises.

        `before` is what the same stream said just before, where there is one.
        """
        state = CallState(new_id(), context, self._timer(), len(body))
        try:
            return await self._inspect(body, headers, state, before)
        except Exception as error:  # noqa: BLE001  the gate's one boundary: any failure refuses
            return await self._fail(state, error)

    async def _inspect(self, body: bytes, headers: Headers, state: CallState, before: str) -> Verdict:
        head = read_head(headers)
        costly = len(body) > READ_AT_ONCE or head.encodings or sniff_coding(body) is not None
        state.size = READ_AT_ONCE + 1 if costly else len(body)
        sent = body, head, state.context, before
        reading, carried = await self.in_thread(state.size, self._examine, *sent) if costly else self._examine(*sent)
        if isinstance(reading, NotMcp):
            return self._let_out(state.context, carried)
        state.reading = reading
        if isinstance(reading, RefusedBody):
            return await self._refuse(state, reading.reason, why=sentence(reading.detail))
        if isinstance(reading, MessageBatch):
            return await self._refuse(state, "batch")
        try:
            check_headers(reading.message, head.mcp)
        except WireError as error:
            return await self._refuse(state, error.reason, why=sentence(error.detail))
        if carried is not None:
            state.findings += carried.findings
            if carried.refused:
                state.blocked_by = carried.redaction.rule
                return await self._refuse(state, carried.reason, carried_why(carried))
        try:
            return await self._decide(reading, head, state)
        except PhaseError as error:
            return await self._refuse(state, error.reason, why=sentence(error.detail))
        except StoreUnavailableError as error:
            log.warning("refusing without the store", call_id=state.call_id, error=str(error))
            return await self._refuse(state, "store_unavailable")

    def _examine(
        self, body: bytes, head: RequestHead, context: Context, before: str
    ) -> tuple[ParsedBody, Carried | None]:
        """Read what is sent, and look through what it carries beside MCP."""
        reading = read_body(body, content_types=head.content_types, encodings=head.encodings, limit=self._body_limit)
        if isinstance(reading, NotMcp) and context.transport in LINE_READ:
            reading = read_lines(body)
        unread = body if isinstance(reading, NotMcp) else None
        return reading, self._outbound.look(context, head, unread, before)

    async def _decide(self, reading: SingleMessage, head: RequestHead, state: CallState) -> Verdict:
        message = reading.message
        state.call = as_call(message, state.context, reading.call)
        if not self._in_flight.claim(state.context, message):
            return await self._refuse(state, "id_in_use")
        verdict: Verdict | None = None
        try:
            verdict = await self._decide_claimed(reading, head, state)
        finally:
            if not isinstance(verdict, Forward):
                self._in_flight.let_go(state.context, message)
        return verdict

    async def _decide_claimed(self, reading: SingleMessage, head: RequestHead, state: CallState) -> Verdict:
        if not may_leave(state.context):
            state.decision = state.context.egress
            return await self._refuse(state, egress_reason(state.context), egress_why(state.context))
        message = reading.message
        asked = self._two_steps.read(message, state) if self._two_steps else None
        if asked:
            message, state.call = asked.message, as_call(asked.message, state.context)
        assert state.call is not None
        state.call = self._as_known(state.call)
        checked = await self._two_steps.check(asked, state) if asked and self._two_steps else None
        asking = message, state.call, state
        small = state.is_small
        refusal, masked = self._weigh(*asking) if small else await self.in_thread(state.size, self._weigh, *asking)
        if refusal is not None:
            return await self._refuse(state, *refusal)
        if asked and self._two_steps and checked is None:
            return await self._two_steps.propose(asked, state)
        try:
            mirrored = mirrored_headers(message, masked, head) if masked is not reading.message else {}
        except WireError as error:
            return await self._refuse(state, error.reason, why=sentence(error.detail))
        if checked and self._two_steps:
            await self._two_steps.commit(checked, state)
        try:
            await self._recorder.decided(state, quietly=_is_quiet(message))
            encoded = reading.encoded if masked is reading.message else None
            return Forward(masked, self._begin(masked, state), mirrored, encoded, state.size)
        except BaseException:
            if state.commit and self._two_steps:
                self._two_steps.ended(state.commit, "not_forwarded")
            raise

    def _weigh(self, message: Message, call: Call, state: CallState) -> tuple[tuple[str, str] | None, Message]:
        """Judge a call and mask its arguments; return why it is refused, if it is, and what would be forwarded."""
        refusal = self._judge(call, state)
        if refusal is not None:
            return refusal, message
        masked = self._redact(message, state)
        return (("secret_found", "") if state.blocked_by is not None else None), masked

    def _as_known(self, call: Call) -> Call:
        """Return a call with what its server says of the tool."""
        if self._catalog is None or call.tool is None:
            return call
        hints = self._catalog.hints(call.server, call.tool)
        if hints is UNSAID:
            return call
        return Call(call.method, call.server, call.agent, call.tool, call.arguments, hints)

    def _judge(self, call: Call, state: CallState) -> tuple[str, str] | None:
        """Let the policy and the pins decide; return why the call is refused, if it is."""
        decision = self._policy().decide(call)
        if not isinstance(decision, Decision):
            raise TypeError(f"the policy gave {type(decision).__name__}, not a Decision")
        state.decision = decision
        if decision.outcome is not Outcome.ALLOW and decision.outcome is not Outcome.TWO_PHASE:
            return decision.reason, ""
        objection = self._catalog.objection(call) if self._catalog is not None else None
        if objection is not None:
            state.decision = replace(decision, outcome=Outcome.DENY, reason=objection.reason, rule=None)
            return objection.reason, objection.why
        if decision.outcome is Outcome.TWO_PHASE and state.phase is None:
            return "two_phase_required", self._two_steps.way_in(state) if self._two_steps else ""
        return None

    def _let_out(self, context: Context, carried: Carried | None) -> Verdict:
        """Let what is not MCP go where policy lets it."""
        if not may_leave(context):
            return Reject(self.refuse_egress("request_refused", context), 403)
        denial = self.declare(context, carried)
        if denial is not None:
            return Reject(denial, 403)
        if context.egress is not None and context.egress.shadow:
            self._recorder.noted("request_shadowed", context.egress.reason, context, "allow")
        return Pass()

    def watch_upload(self, context: Context, headers: Headers, limit: int) -> UploadWatch | Denial | None:
        """Get what looks through a body that streams, a refusal by its head, or None where nobody asks for either."""
        denial = self.declare(context, self._outbound.look(context, headers, b""))
        return denial or self._outbound.watch(context, headers, limit)

    def declare(self, context: Context, carried: Carried | None) -> Denial | None:
        """Record what a request that is not MCP carries; return the refusal where it may not."""
        if carried is None:
            return None
        kind, decision = ("request_refused", "deny") if carried.refused else ("request_reported", "allow")
        log.warning(kind, reason=carried.reason, agent=context.principal.agent, server=context.server)
        audit_id = self._recorder.noted(kind, carried.reason, context, decision, carried=carried)
        return carried_denial(carried, context.server, audit_id) if carried.refused else None

    def refuse_egress(self, kind: str, context: Context) -> Denial:
        """Record that something may not go where `context` says, and give the refusal."""
        return egress_denial(context, self.note(kind, egress_reason(context), context))

    def _redact(self, message: Message, state: CallState) -> Message:
        """Mask the arguments as the decision asks; note in `step` what was found."""
        assert state.decision is not None
        redactions = [redaction for redaction in state.decision.redactions if "arguments" in redaction.on]
        if self._is_clean(message, state, redactions):
            return message
        for redaction in redactions:
            part = "params" if message.kind is not Kind.RESPONSE else "result"
            masked, found = self._redactor.mask(message.value.get(part), redaction.detectors, redaction.suppressions)
            state.findings += found
            if not found or redaction.action == "report":
                continue
            fit = redaction.action == "mask" and all(finding.maskable for finding in found)
            changed = _with_part(message, part, masked) if fit else message
            if not fit or self._breaks(state.call, "inputSchema", message.params, changed.params):
                state.blocked_by = state.blocked_by or redaction.rule
            else:
                message = changed
        return message

    def _is_clean(self, message: Message, state: CallState, redactions: list[Redaction]) -> bool:
        """Look once for all that would be masked, be it to forward or to record; most messages have none of it."""
        if message.kind is Kind.RESPONSE or state.call is None:
            return False
        asked = (*RECORDED, *[name for redaction in redactions for name in redaction.detectors])
        if not self._redactor.is_clean(message.params, state.call.arguments, asked):
            return False
        state.clean = state.call.arguments
        return True

    def _begin(self, message: Message, state: CallState) -> InFlightCall:
        assert state.decision is not None
        assert state.call is not None
        known = state.call
        kept = without_arguments(message)
        call = Call(known.method, known.server, known.agent, known.tool, None, known.hints)
        in_flight = InFlightCall(
            state.call_id, kept, state.context, call, state.decision, state.started, self._timer(), commit=state.commit
        )
        if message.kind is Kind.REQUEST:
            self._in_flight.add(in_flight)
            for oldest in self._in_flight.surplus(call.agent):
                self.abandon(oldest, "unknown")
        return in_flight

    async def _refuse(self, state: CallState, reason: str, why: str = "") -> Verdict:
        denial = state.denial(reason, why)
        try:
            await self._recorder.decided(state, reason)
        except AuditUnavailableError as error:
            log.exception("a refusal could not be recorded", reason=reason, error=str(error))
        return refused_verdict(state, denial)

    async def _fail(self, state: CallState, error: Exception) -> Verdict:
        reason = "audit_unavailable" if isinstance(error, AuditUnavailableError) else "internal_error"
        log.error("refusing after a failure", call_id=state.call_id, reason=reason, exc_info=error)
        try:
            await self._recorder.decided(state, reason, with_arguments=False)
        except Exception as second:
            log.exception("a refusal could not be recorded", call_id=state.call_id, error=str(second))
        return refused_verdict(state, state.denial(reason))

    async def encode(self, verdict: Forward) -> bytes:
        """Return the canonical form of what is forwarded."""
        if verdict.encoded is not None:
            return verdict.encoded
        return await self.in_thread(verdict.size, serialise, verdict.message.value)

    async def in_thread[*A, T](self, size: int, work: Callable[[*A], T], *args: *A) -> T:
        """Do `work` on so many bytes: large work in a thread, so that other calls need not wait for it."""
        if size <= READ_AT_ONCE:
            return work(*args)
        return await asyncio.get_running_loop().run_in_executor(self._readers, partial(work, *args))

    def note(self, kind: str, reason: str, context: Context, **detail: Any) -> str:
        """Record something that was refused outside any call; return the event's id."""
        log.warning(kind, reason=reason, agent=context.principal.agent, server=context.server, **detail)
        return self._recorder.noted(kind, reason, context, "deny", detail)

    def close(self) -> None:
        """Record every call still under way as ended with an unknown outcome."""
        for in_flight in self._in_flight.remaining():
            self.abandon(in_flight, "unknown")
        self._readers.shutdown(wait=False, cancel_futures=True)


def _with_part(message: Message, part: str, masked: Json) -> Message:
    """Return `message` with a masked part. Raises where it is no longer a call of the same tool."""
    changed = Message(message.kind, {**message.value, part: masked}, message.method, message.id)
    before, after = parse_tool_call(message), parse_tool_call(changed)
    if not isinstance(masked, dict) or (before and before.tool) != (after and after.tool):
        raise ValueError("masking changed what is called")
    serialise(masked)
    return changed


def _is_quiet(message: Message) -> bool:
    method = message.method or ""
    return method in QUIET or method.startswith("notifications/")
