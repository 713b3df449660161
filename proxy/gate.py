"""The one order of things, for every transport alike.

Out:  parse → decide → redact → two-phase → record → verdict.
Back: result → redact → record.

Transport-free. Whatever fails on the way out, in whatever step, is a refusal;
the methods here do not raise.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import structlog

from proxy.catalogue import TOOLS_LIST, is_tool_list
from proxy.errors import AuditUnavailableError, BoardUnavailableError, PhaseError, StoreUnavailableError, WireError
from proxy.exchanges import Exchanges, without_arguments
from proxy.journal import RECORDED, Journal, digest, new_id
from proxy.model import (
    Call,
    Context,
    Decision,
    Denial,
    Exchange,
    Forward,
    Json,
    JsonObject,
    Kind,
    Message,
    Outcome,
    Pass,
    Reject,
    Verdict,
)
from proxy.outbound import Carried, Customs, UploadWatch
from proxy.refusals import (
    Step,
    as_call,
    carried_denial,
    carried_why,
    egress_denial,
    egress_reason,
    egress_why,
    may_leave,
    outcome_of,
    refused_verdict,
    sentence,
    withheld,
)
from proxy.results import mask_beside, mask_result
from proxy.two_steps import TwoSteps
from proxy.wire import answers
from proxy.wire.body import Batch, Foreign, Refused, read_body, read_lines
from proxy.wire.encoding import sniff_coding
from proxy.wire.jsonrpc import respell, serialise
from proxy.wire.mcp import Headers, check_headers, mirrored_headers, parse_tool_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.catalogue import Catalogue
    from proxy.model import Board, EventSink, Policy, Redaction, Redactor
    from proxy.phases import Phases
    from proxy.wire.body import Reading

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
# Larger bodies are read in a thread, so that other clients are served meanwhile.
READ_AT_ONCE = 1 << 16
READERS = 2


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
        phases: Phases | None = None,
        board: Board | None = None,
    ) -> None:
        self._policy = policy
        self._catalogue = catalogue
        self._redactor = redactor
        self._body_limit = body_limit
        # What a call took is no matter of the wall clock, which may jump.
        self._timer = time.monotonic if clock is time.time else clock
        self._journal = Journal(sink, redactor, clock, self.aside, self._timer)
        self._customs = Customs(redactor, body_limit)
        self._exchanges = Exchanges(board=board)
        self._two_steps = TwoSteps(phases, catalogue, self._journal) if phases and catalogue else None
        # Threads of their own: looking up names must not queue behind large bodies.
        self._readers = ThreadPoolExecutor(READERS, "interlock-reader")

    async def inspect(self, body: bytes, context: Context, headers: Headers = (), before: str = "") -> Verdict:
        """Decide what becomes of `body`, sent by a client. Never raises.

        `before` is what the same stream said just before, where there is one.
        """
        step = Step(new_id(), context, self._timer(), len(body))
        try:
            return await self._inspect(body, headers, step, before)
        except Exception as error:  # noqa: BLE001  the gate's one boundary: any failure refuses
            return await self._fail(step, error)

    async def _inspect(self, body: bytes, headers: Headers, step: Step, before: str) -> Verdict:
        step.size = READ_AT_ONCE + 1 if _is_costly(body, headers) else len(body)
        reading = await self.aside(step.size, partial(self._read, body, headers, step.context))
        foreign = isinstance(reading, Foreign)
        look = partial(self._customs.look, step.context, headers, body if foreign else None, before)
        carried = await self.aside(step.size, look)
        if isinstance(reading, Foreign):
            return self._let_out(step.context, carried)
        step.reading = reading
        if isinstance(reading, Refused):
            return await self._refuse(step, reading.reason, why=sentence(reading.detail))
        if isinstance(reading, Batch):
            return await self._refuse(step, "batch")
        try:
            check_headers(reading.message, headers)
        except WireError as error:
            return await self._refuse(step, error.reason, why=sentence(error.detail))
        if carried is not None:
            step.findings += carried.findings
            if carried.refused:
                step.blocked_by = carried.redaction.rule
                return await self._refuse(step, carried.reason, carried_why(carried))
        try:
            return await self._decide(reading.message, headers, step)
        except PhaseError as error:
            return await self._refuse(step, error.reason, why=sentence(error.detail))
        except StoreUnavailableError as error:
            log.warning("refusing without the store", call_id=step.call_id, error=str(error))
            return await self._refuse(step, "store_unavailable")

    def _read(self, body: bytes, headers: Headers, context: Context) -> Reading:
        reading = read_body(
            body,
            content_types=[value for name, value in headers if name.lower() == "content-type"],
            encodings=[value for name, value in headers if name.lower() == "content-encoding"],
            limit=self._body_limit,
        )
        if isinstance(reading, Foreign) and context.transport in LINE_READ:
            return read_lines(body)
        return reading

    async def _decide(self, message: Message, headers: Headers, step: Step) -> Verdict:
        step.call = as_call(message, step.context)
        if not self._exchanges.claim(step.context, message):
            return await self._refuse(step, "id_in_use")
        verdict: Verdict | None = None
        try:
            verdict = await self._decide_claimed(message, headers, step)
        finally:
            if not isinstance(verdict, Forward):
                self._exchanges.let_go(step.context, message)
        return verdict

    async def _decide_claimed(self, message: Message, headers: Headers, step: Step) -> Verdict:
        if not may_leave(step.context):
            step.decision = step.context.egress
            return await self._refuse(step, egress_reason(step.context), egress_why(step.context))
        asked = self._two_steps.read(message, step) if self._two_steps else None
        message = asked.message if asked else message
        call = step.call = self._as_known(as_call(message, step.context))
        checked = await self._two_steps.check(asked, step) if self._two_steps and asked else None
        refusal = await self.aside(step.size, partial(self._judge, call, step, phased=asked is not None))
        if refusal is not None:
            return await self._refuse(step, *refusal)
        masked = await self.aside(step.size, partial(self._redact, message, step))
        if step.blocked_by is not None:
            return await self._refuse(step, "secret_found")
        if self._two_steps and asked and checked is None:
            return await self._two_steps.propose(asked, step)
        try:
            mirrored = mirrored_headers(message, masked, headers) if masked is not message or asked else {}
        except WireError as error:
            return await self._refuse(step, error.reason, why=sentence(error.detail))
        if self._two_steps and checked:
            await self._two_steps.commit(checked, step)
        try:
            await self._journal.decided(step, quietly=_is_quiet(message))
            return Forward(masked, self._begin(masked, step), mirrored)
        except BaseException:
            if self._two_steps and step.commit:
                self._two_steps.ended(step.commit, "not_forwarded")
            raise

    def _as_known(self, call: Call) -> Call:
        """Give a call with what its server says of the tool."""
        if self._catalogue is None or call.tool is None:
            return call
        hints = self._catalogue.hints(call.server, call.tool)
        return call if hints == call.hints else replace(call, hints=hints)

    def _judge(self, call: Call, step: Step, *, phased: bool) -> tuple[str, str] | None:
        """Let the policy and the pins decide; give why the call is refused, if it is."""
        decision = self._policy().decide(call)
        if not isinstance(decision, Decision):
            raise TypeError(f"the policy gave {type(decision).__name__}, not a Decision")
        step.decision = decision
        if decision.outcome is not Outcome.ALLOW and decision.outcome is not Outcome.TWO_PHASE:
            return decision.reason, ""
        objection = self._catalogue.objection(call) if self._catalogue is not None else None
        if objection is not None:
            step.decision = replace(decision, outcome=Outcome.DENY, reason=objection.reason, rule=None)
            return objection.reason, objection.why
        if decision.outcome is Outcome.TWO_PHASE and not phased:
            return "two_phase_required", self._two_steps.way_in(step) if self._two_steps else ""
        return None

    def _let_out(self, context: Context, carried: Carried | None) -> Verdict:
        """Let what is not MCP go where policy lets it."""
        if not may_leave(context):
            return Reject(self.refuse_egress("request_refused", context), 403)
        denial = self.declare(context, carried)
        if denial is not None:
            return Reject(denial, 403)
        if context.egress is not None and context.egress.shadow:
            self._journal.noted("request_shadowed", context.egress.reason, context, "allow")
        return Pass()

    def watch_upload(self, context: Context, headers: Headers, limit: int) -> UploadWatch | Denial | None:
        """Give what looks through a body that streams, a refusal by its head, or None where nobody asks for either."""
        denial = self.declare(context, self._customs.look(context, headers, b""))
        return denial or self._customs.watch(context, headers, limit)

    def declare(self, context: Context, carried: Carried | None) -> Denial | None:
        """Record what a request that is not MCP carries; give the refusal where it may not."""
        if carried is None:
            return None
        kind, decision = ("request_refused", "deny") if carried.refused else ("request_reported", "allow")
        log.warning(kind, reason=carried.reason, agent=context.principal.agent, server=context.server)
        audit_id = self._journal.noted(kind, carried.reason, context, decision, carried=carried)
        return carried_denial(carried, context.server, audit_id) if carried.refused else None

    def refuse_egress(self, kind: str, context: Context) -> Denial:
        """Record that something may not go where `context` says, and give the refusal."""
        return egress_denial(context, self.note(kind, egress_reason(context), context))

    def _redact(self, message: Message, step: Step) -> Message:
        """Mask the arguments as the decision asks; note in `step` what was found."""
        assert step.decision is not None
        redactions = [redaction for redaction in step.decision.redactions if "arguments" in redaction.on]
        if self._is_clean(message, step, redactions):
            return message
        for redaction in redactions:
            part = "params" if message.kind is not Kind.RESPONSE else "result"
            masked, found = self._redactor.mask(message.value.get(part), redaction.detectors, redaction.suppressions)
            step.findings += found
            if not found or redaction.action == "report":
                continue
            fit = redaction.action == "mask" and all(finding.maskable for finding in found)
            changed = _with_part(message, part, masked) if fit else message
            if not fit or self._breaks(step.call, "inputSchema", message.params, changed.params):
                step.blocked_by = step.blocked_by or redaction.rule
            else:
                message = changed
        return message

    def _is_clean(self, message: Message, step: Step, redactions: list[Redaction]) -> bool:
        """Look once for all that would be masked, be it to forward or to record; most messages have none of it."""
        if message.kind is Kind.RESPONSE or step.call is None:
            return False
        asked = (*RECORDED, *(name for redaction in redactions for name in redaction.detectors))
        if not self._redactor.is_clean(message.params, step.call.arguments, asked):
            return False
        step.clean = step.call.arguments
        return True

    def _breaks(self, call: Call | None, part: Literal["inputSchema", "outputSchema"], *values: Any) -> bool:
        """Say whether a mask, between the two values, breaks what the tool's schema says of them."""
        if self._catalogue is None or call is None or not all(isinstance(value, dict) for value in values):
            return False
        return self._catalogue.breaks(call, part, *values)

    def _begin(self, message: Message, step: Step) -> Exchange:
        assert step.decision is not None
        assert step.call is not None
        known = step.call
        kept = without_arguments(message)
        call = Call(known.method, known.server, known.agent, known.tool, None, known.hints)
        exchange = Exchange(
            step.call_id, kept, step.context, call, step.decision, step.started, self._timer(), commit=step.commit
        )
        if message.kind is Kind.REQUEST:
            self._exchanges.add(exchange)
            for oldest in self._exchanges.surplus(call.agent):
                self.abandon(oldest, "unknown")
        return exchange

    async def _refuse(self, step: Step, reason: str, why: str = "") -> Verdict:
        denial = step.denial(reason, why)
        try:
            await self._journal.decided(step, reason)
        except AuditUnavailableError as error:
            log.exception("a refusal could not be recorded", reason=reason, error=str(error))
        return refused_verdict(step, denial)

    async def _fail(self, step: Step, error: Exception) -> Verdict:
        reason = "audit_unavailable" if isinstance(error, AuditUnavailableError) else "internal_error"
        log.error("refusing after a failure", call_id=step.call_id, reason=reason, exc_info=error)
        try:
            await self._journal.decided(step, reason, with_arguments=False)
        except Exception as second:
            log.exception("a refusal could not be recorded", call_id=step.call_id, error=str(second))
        return refused_verdict(step, step.denial(reason))

    async def aside[T](self, size: int, work: Callable[[], T]) -> T:
        """Do `work` on so many bytes: large work in a thread, so that other calls need not wait for it."""
        if size <= READ_AT_ONCE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def find(self, context: Context, message_id: object) -> Exchange | None:
        """Give the call under way in this session that a response of this id answers."""
        return self._exchanges.find(context, message_id)

    def observe(self, exchange: Exchange, value: JsonObject, raw: bytes) -> JsonObject:
        """Take the response to `exchange`: give it masked, and record how the call ended.

        `raw` is the response as it came. Gives `value` itself where nothing was
        changed, and a refusal where that failed. Of a tool list it gives what
        the agent may see.
        """
        outcome, is_error = outcome_of(value)
        try:
            shown = value
            if exchange.message.method == TOOLS_LIST:
                shown = self._show_tools(exchange.context, value, exchange.message.params.get("cursor") is not None)
            masked, findings = mask_result(self._redactor, exchange, shown)
            if masked and self._breaks(exchange.call, "outputSchema", shown.get("result"), masked.get("result")):
                masked = None
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
            answer=masked,
            outcome=outcome,
            is_error=is_error,
            result_size=len(raw),
            result_digest=digest(delivered),
            redactions=findings,
        )
        return masked

    def mask_aside(self, exchange: Exchange, value: Any) -> Any:
        """Mask what a server sends beside the answer to `exchange`; a refusal where that fails."""
        try:
            return mask_beside(self._redactor, exchange, value)
        except Exception as error:
            log.exception("a message could not be masked", call_id=exchange.call_id, error=str(error))
            return self._withheld(exchange, exchange.message.id, "internal_error")

    def share(self, exchange: Exchange) -> None:
        """Let other workers know of a call whose answer may come on another stream than its own.

        Where that fails, its answer is one to a call that nobody knows.
        """
        if exchange.context.session is None:
            return
        try:
            self._exchanges.share(exchange)
        except BoardUnavailableError as error:
            log.warning("other workers do not know of a call", call_id=exchange.call_id, error=str(error))

    def catch_up(self) -> None:
        """Let go of calls that other workers saw the answers of."""
        self._exchanges.catch_up()

    def overhear(self, context: Context, value: JsonObject) -> JsonObject:
        """Take a response to a call that nobody knows, such as a replay after a restart.

        A tool list is cut as any other, and all is masked that some rule might have asked for.
        """
        try:
            shown = self._show_tools(context, value, continued=False) if is_tool_list(value) else value
            if context.session is None and "jsonrpc" not in value:
                return shown
            return self._mask_unmatched(context, shown)
        except Exception as error:
            log.exception("an unexpected answer is withheld", server=context.server, error=str(error))
            return answers.refuse(value.get("id", 0), TOOLS_LIST, withheld("internal_error", TOOLS_LIST))

    def _mask_unmatched(self, context: Context, value: JsonObject) -> JsonObject:
        decision, now = self._policy().unmatched(context.server), self._timer()
        nobodys = Message(Kind.REQUEST, {}, None, value.get("id"))
        call = Call("", context.server, context.principal.agent)
        masked, findings = mask_result(
            self._redactor, Exchange(new_id(), nobodys, context, call, decision, now, now), value
        )
        if findings:
            kinds = sorted({finding.detector for finding in findings})
            log.warning("an answer to no known call held secrets", server=context.server, detectors=kinds)
        return masked or answers.refuse(value.get("id", 0), TOOLS_LIST, withheld("secret_found", TOOLS_LIST))

    def _show_tools(self, context: Context, value: JsonObject, continued: bool) -> JsonObject:  # noqa: FBT001
        """Give a tool list with what the agent may see, and record what was found in it."""
        if self._catalogue is None or not isinstance(value.get("result"), dict):
            return value
        result, findings = self._catalogue.show(context, value["result"], continued=continued)
        for finding in findings:
            self._journal.found(context, finding)
        return {**value, "result": result}

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
        denial = withheld(reason, message.method, exchange.call_id)
        return answers.refuse(message_id, message.method, denial, message.params)

    def abandon(self, exchange: Exchange, outcome: str) -> None:
        """Record that no answer to `exchange` was seen."""
        self._close(exchange, outcome=outcome)

    def abandon_session(self, context: Context) -> None:
        """Record that no answer will come to what is under way in a session that is over."""
        for exchange in self._exchanges.of_session(context):
            self.abandon(exchange, "interrupted")

    def note(self, kind: str, reason: str, context: Context, **detail: Any) -> str:
        """Record something that was refused outside any call; give the event's id."""
        log.warning(kind, reason=reason, agent=context.principal.agent, server=context.server, **detail)
        return self._journal.noted(kind, reason, context, "deny", detail)

    def observed(self, context: Context, exchange: Exchange | None, detail: JsonObject) -> None:
        """Record what a server was seen to do: in the call of `exchange`, or outside any."""
        self._journal.observed(context, exchange, detail)

    def _close(self, exchange: Exchange, *, answer: JsonObject | None = None, **fields: Any) -> None:
        if self._exchanges.end(exchange):
            self._journal.completed(exchange, **fields)
            if self._two_steps and exchange.commit:
                self._two_steps.ended(exchange.commit, fields["outcome"], answer)

    @property
    def under_way(self) -> int:
        """How many calls have been forwarded and not answered."""
        return len(self._exchanges)

    def close(self) -> None:
        """Record every call still under way as ended with an unknown outcome."""
        for exchange in self._exchanges.remaining():
            self.abandon(exchange, "unknown")
        self._readers.shutdown(wait=False, cancel_futures=True)


def _is_costly(body: bytes, headers: Headers) -> bool:
    """Say whether reading `body` could take long enough for others to notice."""
    encoded = any(name.lower() == "content-encoding" for name, _ in headers)
    return len(body) > READ_AT_ONCE or encoded or sniff_coding(body) is not None


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
    return method in QUIET or method.startswith("notifications/")
