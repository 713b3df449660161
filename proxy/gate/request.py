"""The request path, for every transport alike: parse → decide → redact → two-phase → record → verdict.

The order is the guarantee. What is decided on is the strictly parsed message, what is forwarded is that same message
written anew, and nothing is forwarded before its event is durable. Whatever fails, in whatever step, is a refusal:
`inspect` does not raise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog
from uuid_utils import uuid7

from proxy.core.model import (
    Answer,
    Call,
    CallerLink,
    Context,
    Decision,
    Finding,
    Forward,
    Held,
    InFlightCall,
    Kind,
    Message,
    Outcome,
    ToolCall,
    Verdict,
)
from proxy.errors import AuditUnavailableError, LimitError, PhaseError, StoreUnavailableError, VaultError, WireError
from proxy.gate.a2a_rest import read_call, unwrap
from proxy.gate.credentials import sent_message
from proxy.gate.hold import without_our_answers
from proxy.gate.judge import HOLD, CallJudge, Refusal
from proxy.gate.refusal import CallState, carried_why, egress_reason, egress_why, refused_verdict, sentence
from proxy.gate.task_calls import METHODS as TASK_CALLS
from proxy.gate.task_calls import is_mirrored, is_own_task
from proxy.twophase.listing import PHASE_SUFFIXES
from proxy.wire.a2a import is_rest
from proxy.wire.body import (
    READ_AT_ONCE,
    MessageBatch,
    NotMcp,
    ParsedBody,
    RefusedBody,
    SingleMessage,
    is_call_in_query,
    read_body,
)
from proxy.wire.content_coding import CODING_MARKS
from proxy.wire.hidden_request import read_hidden
from proxy.wire.jsonrpc import parse_message, serialise
from proxy.wire.mcp import Headers, RequestHead, check_headers, mirrored_headers, parse_tool_call, read_head
from proxy.wire.sse_ping_carrier import TO_SERVER, carried

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.gate.gate import GateParts
    from proxy.gate.outbound_scan import Carried
    from proxy.gate.plain_request import PlainRequests
    from proxy.gate.two_phase import PhaseCall, TwoPhase
    from proxy.twophase.commit import Checked
    from proxy.wire.client_stream import ClientStream

log = structlog.get_logger("interlock.gate")

# Messages that make a server do nothing: the gate does not wait until their events are durable.
_LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "tasks/list")
# A WebSocket message or a line is no HTTP body, so no server finds another request in it.
NOT_HTTP = ("websocket", "stdio", "hook")
QUIET = frozenset(("initialize", "ping", "server/discover", "logging/setLevel", *_LISTS))


class RequestGate:
    """Decides on what clients send. `end_call` is called with the oldest calls where too many are under way."""

    def __init__(
        self,
        parts: GateParts,
        plain_requests: PlainRequests,
        body_limit: int,
        end_call: Callable[[InFlightCall, str], None],
    ) -> None:
        self._policy = parts.policy
        self._judge = CallJudge(parts)
        self._recorder = parts.recorder
        self._in_flight = parts.in_flight
        self._threads = parts.threads
        self._timer = parts.timer
        self._two_phase = parts.two_phase
        self._key = parts.seal_key
        self._endpoints = parts.endpoints
        self._limits = parts.limits
        self._flows = parts.flows
        self._external = parts.external
        self._credentials = parts.credentials
        self._plain_requests = plain_requests
        self._body_limit = body_limit
        self._end_call = end_call

    async def inspect(
        self, body: bytes, context: Context, headers: Headers = (), stream: ClientStream | None = None
    ) -> Verdict:
        """Decide what becomes of a client's `body`; `stream` is what it is a message of, if it is. Never raises."""
        state = CallState(str(uuid7()), context, self._timer(), len(body))
        try:
            # The HTTP addon has sorted the headers already; the other transports have none.
            head = headers if isinstance(headers, RequestHead) else read_head(headers)
            return await self._inspect(body, head, state, stream)
        except Exception as error:  # noqa: BLE001  the gate's one boundary: any failure refuses
            return await self._fail(state, error)

    async def _inspect(self, body: bytes, head: RequestHead, state: CallState, stream: ClientStream | None) -> Verdict:
        # A few compressed bytes may unpack to very many, so a coding is work for a thread, declared or not: servers
        # may recognise a compressed body by its first byte, and so does `read_body`.
        if len(body) > READ_AT_ONCE or head.encodings or body[:1] in CODING_MARKS:
            state.size, state.is_small = READ_AT_ONCE + 1, False
            reading, carried = await self._threads.run(state.size, self._examine, body, head, state, stream)
        else:
            reading, carried = self._examine(body, head, state, stream)
        if isinstance(reading, NotMcp):
            if body and self._endpoints.takes_only_mcp(state.context, head):
                return await self._refuse(state, "not_mcp")
            return await self._plain_requests.decide(state.context, carried, head, body)
        state.reading, state.marked = reading, self._credentials.may_show(state.context, head, body)
        if isinstance(reading, RefusedBody):
            return await self._refuse(state, reading.reason, why=sentence(reading.detail))
        if isinstance(reading, MessageBatch):
            return await self._refuse(state, "batch")
        verdict = await self._inspect_message(reading, head, state, carried)
        return unwrap(verdict) if is_rest(reading.message) else verdict

    def _examine(
        self, body: bytes, head: RequestHead, state: CallState, stream: ClientStream | None
    ) -> tuple[ParsedBody, Carried | None]:
        """Parse what is sent, and scan what it carries beside MCP for secrets."""
        context, call_id = state.context, state.call_id
        reading = read_body(body, content_types=head.content_types, encodings=head.encodings, limit=self._body_limit)
        if isinstance(reading, NotMcp) and context.transport not in NOT_HTTP:
            reading = read_hidden(body, self._body_limit)
        if stream is not None:
            reading = stream.judge(reading, body)
        if isinstance(reading, NotMcp) and context.transport not in NOT_HTTP:
            reading = read_call(body, head, context, self._body_limit, call_id) or reading
        # Servers that merge the query's fields into the message (PHP, Express) would run another call than the body's.
        if "?" in context.target and is_call_in_query(context.target, with_body=bool(body)):
            message = reading.message if isinstance(reading, SingleMessage) else None
            named = (message.id, message.method) if message else (None, None)
            reading = RefusedBody("call_in_fields", "the fields of the query make a message", *named)
        unread = body if isinstance(reading, NotMcp) else None
        said = (stream.said, stream.pieces) if stream is not None else ("", "")
        return reading, self._plain_requests.scanner.look(context, head, unread, *said)

    async def _inspect_message(
        self, reading: SingleMessage, head: RequestHead, state: CallState, carried: Carried | None
    ) -> Verdict:
        state.message = reading.message
        try:
            # Servers and balancers may route by these headers: one that differs from the body would be another call.
            if head.mcp:
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
        except LimitError as error:
            return await self._refuse(state, error.reason)
        except StoreUnavailableError as error:
            log.warning("refusing without the store", call_id=state.call_id, error=str(error))
            return await self._refuse(state, "store_unavailable")

    async def _decide(self, reading: SingleMessage, head: RequestHead, state: CallState) -> Verdict:
        message = reading.message
        state.call = as_call(message, state.context, reading.call)
        # Without a session nobody else can answer: the response to an HTTP request comes on its own connection.
        if state.context.session is None:
            return await self._decide_claimed(reading, head, state)
        # Claimed before anything is awaited: of two requests with one id at the same time, one is refused. Else the
        # answer to the first would be taken for that of the second, and masked by the second one's rules.
        if not self._in_flight.claim(state.context, message):
            return await self._refuse(state, "id_in_use")
        verdict: Verdict | None = None
        try:
            if self._in_flight.spans_replicas and not await self._in_flight.claim_afar(state.context, message):
                return await self._refuse(state, "id_in_use")
            verdict = await self._decide_claimed(reading, head, state)
        finally:
            # Also where it was cancelled: a client that hangs up must not leave its id in use for ever.
            if not isinstance(verdict, Forward | Held):
                self._in_flight.release(state.context, message)
        return self._keep_claim(verdict, state) if isinstance(verdict, Held) else verdict

    def _keep_claim(self, held: Held, state: CallState) -> Held:
        """Return a held call whose id stays in use until it is forwarded and answered, or refused."""

        async def wait(link: CallerLink) -> Verdict:
            verdict: Verdict | None = None
            try:
                verdict = await held.wait(link)
            finally:
                if not isinstance(verdict, Forward) and state.message is not None:
                    self._in_flight.release(state.context, state.message)
            return verdict

        return Held(wait, held.message_id)

    async def _decide_claimed(self, reading: SingleMessage, head: RequestHead, state: CallState) -> Verdict:
        identity = state.context.principal.identity
        # Checked here for what outlives a request: WebSockets, and servers over stdio.
        if identity is not None and not self._recorder.now() < identity.expires:
            return await self._refuse(state, "token_expired")
        egress = state.context.egress
        if egress is not None and egress.outcome is not Outcome.ALLOW:
            state.decision = egress
            return await self._refuse(state, egress_reason(state.context), egress_why(state.context))
        if reading.message.kind is Kind.RESPONSE and (refusal := self._carried_refusal(reading.message)) is not None:
            state.decision = Decision(Outcome.ALLOW, "default_allow")
            if (refused := await self._prepare(refusal, head, state)) is not None:
                return refused
            return await self._forward(refusal, {}, None, state)
        if reading.message.method in TASK_CALLS and self._two_phase is not None and is_own_task(reading.message):
            return await self._decide_task(self._two_phase, reading.message, head, state)
        return await self._decide_call(reading, head, state)

    async def _decide_call(self, reading: SingleMessage, head: RequestHead, state: CallState) -> Verdict:
        phase_call = self._read_phase(reading.message, state)
        message = phase_call.message if phase_call is not None else reading.message
        if (refusal_of_halt := self._judge.halted(state)) is not None:
            return await self._refuse(state, "halted", refusal_of_halt)
        # This uses nothing up. The token is consumed only when all else has passed, so a refused call costs none.
        checked = None if phase_call is None else await self._check_commit(phase_call, state)
        self._judge.look_up(state)
        if self._flows is not None and self._flows.policy().flows is not None:
            await self._flows.recall(state)
        found = state.findings
        if state.is_small:
            refused, masked = self._judge.weigh(message, state)
        else:
            refused, masked = await self._threads.run(state.size, self._judge.weigh, message, state)
        if state.decision is not None and state.decision.asks:
            refused, masked = await self._weigh_answered(message, state, refused, masked, found)
        if refused is not None:
            return await self._refuse(state, *refused)
        if state.decision is not None and state.decision.charges:
            await self._limits.look(state, self._policy())
            if phase_call is None and (refused := self._judge.wants_proposal(state)) is not None:
                return await self._refuse(state, *refused)
        if phase_call is None and state.decision is not None and state.decision.outcome is Outcome.TWO_PHASE:
            return Held(partial(self._hold, reading, head, state, found), message.id)
        if phase_call is not None and checked is None:
            assert self._two_phase is not None
            return await self._two_phase.propose(phase_call, state, self._recorder)
        return await self._commit_and_forward(reading, head, state, message, masked, checked)

    async def _weigh_answered(
        self,
        message: Message,
        state: CallState,
        refused: Refusal | None,
        masked: Message,
        found: tuple[Finding, ...],
    ) -> tuple[Refusal | None, Message]:
        """Ask the services that the decision names, and weigh the call again; not where it is refused anyway."""
        assert state.decision is not None
        if refused is not None and state.decision.outcome is not Outcome.EXTERNAL:
            return refused, masked
        await self._external.answer(state)
        state.findings, state.blocked_by, state.clean = found, None, None
        return await self._threads.run(state.size, self._judge.weigh, message, state)

    async def _decide_task(self, two_phase: TwoPhase, message: Message, head: RequestHead, state: CallState) -> Verdict:
        """Answer for a task of our own; for its result, hold the call that it is of."""
        asked = await two_phase.tasks.take(message, state)
        if isinstance(asked, Answer):
            state.decision = Decision(Outcome.ALLOW, "default_allow")
            await self._recorder.decided(state, quietly=True)
            return asked
        if any(is_mirrored(name) for name, _ in head.mcp):
            return await self._refuse(state, "header_mismatch", "Its headers would name another call.")
        reading, found = SingleMessage(asked), state.findings
        state.call = as_call(asked, state.context)
        if (why := self._judge.halted(state)) is not None:
            return await self._refuse(state, "halted", why)
        self._judge.look_up(state)
        refused, masked = await self._threads.run(state.size, self._judge.weigh, asked, state)
        if state.decision is not None and state.decision.asks:
            refused, _ = await self._weigh_answered(asked, state, refused, masked, found)
        if refused is not None:
            return await self._refuse(state, *refused)
        # Held whatever today's policy says: only its proposal's nonce keeps it from being made twice.
        return Held(partial(self._hold, reading, head, state, found), message.id)

    async def _commit_and_forward(
        self,
        reading: SingleMessage,
        head: RequestHead,
        state: CallState,
        message: Message,
        masked: Message,
        checked: Checked | None,
    ) -> Verdict:
        try:
            mirrored = mirrored_headers(message, masked, head) if masked is not reading.message else {}
        except WireError as error:
            return await self._refuse(state, error.reason, why=sentence(error.detail))
        if (refused := await self._prepare(masked, head, state)) is not None:
            return refused
        # Again: people may have taken long to approve it, and the source of a credential may be slow.
        if (refusal_of_halt := self._judge.halted(state)) is not None:
            return await self._refuse(state, "halted", refusal_of_halt)
        if state.flows is not None and self._flows is not None:
            await self._flows.settle(state)
        # The bytes that reading made known are those of the message as it came: of no use once it was changed.
        encoded = reading.encoded if masked is reading.message else None
        verdict: Verdict | None = None
        try:
            if state.decision is None or state.decision.charges:
                await self._limits.reserve(state, self._policy(), approved=checked is not None)
            if checked is not None:
                assert self._two_phase is not None
                await self._two_phase.commit(checked, state, self._recorder)
            verdict = await self._forward(masked, mirrored, encoded, state)
        finally:
            if state.charges and not isinstance(verdict, Forward):
                self._limits.give_back(state.call_id, state.charges)
        return verdict

    async def _prepare(self, message: Message, head: RequestHead, state: CallState) -> Verdict | None:
        """Have the credentials at hand that a message needs; return the refusal where it may not have them."""
        if not state.marked:
            return None
        called = parse_tool_call(message)
        try:
            sent = sent_message(state.context, head, message, called.tool if called is not None else None)
            state.filling = await self._credentials.prepare(sent)
        except VaultError as error:
            return await self._refuse(state, error.reason, error.detail)
        return None

    def _carried_refusal(self, message: Message) -> Message | None:
        """Return the refusal of a server's request that a client's answer to our `ping` brings back, if it does."""
        if not isinstance(message.id, str):
            return None
        answers = carried(message.id, self._key, TO_SERVER)
        return parse_message(answers[0]) if answers else None

    async def _hold(
        self,
        reading: SingleMessage,
        head: RequestHead,
        state: CallState,
        found: tuple[Finding, ...],
        link: CallerLink,
    ) -> Verdict:
        """Wait until people have decided on a call; `found` is what was known of it before it was weighed."""
        try:
            return await self._wait_and_forward(reading, head, state, found, link)
        except PhaseError as error:
            return await self._refuse(state, error.reason, why=sentence(error.detail))
        except LimitError as error:
            return await self._refuse(state, error.reason)
        except StoreUnavailableError as error:
            log.warning("refusing without the store", call_id=state.call_id, error=str(error))
            return await self._refuse(state, "store_unavailable")
        except Exception as error:  # noqa: BLE001  a boundary as `inspect` has one: any failure refuses
            return await self._fail(state, error)

    async def _wait_and_forward(
        self,
        reading: SingleMessage,
        head: RequestHead,
        state: CallState,
        found: tuple[Finding, ...],
        link: CallerLink,
    ) -> Verdict:
        assert self._two_phase is not None
        state.phase = HOLD
        checked = await self._two_phase.held.wait(reading.message, state, self._recorder, link)
        if isinstance(checked, Answer):
            state.phase, state.recorded_reason = "propose", "proposal_pending"
            await self._recorder.decided(state)
            return checked
        # People take their time: the policy that counts is the one in force when the call is made.
        message, state.findings = without_our_answers(reading.message), found
        self._judge.look_up(state)
        if self._flows is not None:
            await self._flows.recall(state)
        if state.call is not None and state.call.answers is not None:
            state.call = replace(state.call, answers=None)  # a yes of before people took their time
        refusal, masked = await self._threads.run(state.size, self._judge.weigh, message, state)
        if state.decision is not None and state.decision.asks:
            refusal, masked = await self._weigh_answered(message, state, refusal, masked, found)
        if refusal is not None:
            return await self._refuse(state, *refusal)
        return await self._commit_and_forward(reading, head, state, message, masked, checked)

    def _read_phase(self, message: Message, state: CallState) -> PhaseCall | None:
        # The name's end is checked here because nearly every call is of a tool itself, and needs no more than that.
        if self._two_phase is None or state.call is None or state.call.tool is None:
            return None
        return self._two_phase.read(message, state) if state.call.tool.endswith(PHASE_SUFFIXES) else None

    async def _check_commit(self, phase_call: PhaseCall, state: CallState) -> Checked | None:
        if self._two_phase is None or phase_call.phase != "commit":
            return None
        assert state.call is not None
        return await self._two_phase.check(state.call, phase_call.ticket)

    async def _forward(
        self, message: Message, mirrored: dict[str, str], encoded: bytes | None, state: CallState
    ) -> Verdict:
        method = message.method or ""
        try:
            quietly = method in QUIET or method.startswith("notifications/")
            if quietly and method == "notifications/cancelled" and self._two_phase is not None:
                self._two_phase.held.cancel(state.context, message.params.get("requestId"))
            await self._recorder.decided(state, quietly=quietly)
            in_flight, surplus = self._in_flight.begin(message, state, self._timer())
            if in_flight.charges and message.kind is not Kind.REQUEST:
                self._limits.ended(in_flight)  # nothing will tell when it ends
            for oldest in surplus:
                self._end_call(oldest, "unknown")
            return Forward(message, in_flight, mirrored, encoded, state.size, state.filling)
        except BaseException:
            # Cancelled or failed between the commit and the server: the token is used up, and the call was not made.
            if state.commit and self._two_phase:
                self._two_phase.ended(state.commit, "not_forwarded")
            raise

    async def _refuse(self, state: CallState, reason: str, why: str = "") -> Verdict:
        denial = state.denial(reason, why)
        try:
            await self._recorder.decided(state, reason)
        except AuditUnavailableError as error:
            # A refusal needs no record to be safe: nothing is forwarded either way.
            log.exception("a refusal could not be recorded", reason=reason, error=str(error))
        return refused_verdict(state, denial)

    async def _fail(self, state: CallState, error: Exception) -> Verdict:
        reason = "audit_unavailable" if isinstance(error, AuditUnavailableError) else "internal_error"
        log.error("refusing after a failure", call_id=state.call_id, reason=reason, exc_info=error)
        try:
            # Without the arguments: it may be masking that failed, and they would be recorded as they came.
            await self._recorder.decided(state, reason, with_arguments=False)
        except Exception as second:
            log.exception("a refusal could not be recorded", call_id=state.call_id, error=str(second))
        return refused_verdict(state, state.denial(reason))

    async def encode(self, verdict: Forward) -> bytes:
        """Return the canonical form of what is forwarded."""
        if verdict.encoded is not None:
            return verdict.encoded
        return await self._threads.run(verdict.size, serialise, verdict.message.value)


def as_call(message: Message, context: Context, called: ToolCall | None = None) -> Call:
    """Return what policy decides on; `called` is the tool call that the message makes, where that was parsed."""
    method, server, agent = message.method or "", context.server, context.principal.agent
    identity = context.principal.identity
    if called := called or parse_tool_call(message):
        return Call(method, server, agent, called.tool, called.arguments, identity=identity)
    if message.kind is Kind.RESPONSE:
        return Call("response", server, agent, None, message.value, identity=identity)
    return Call(method, server, agent, None, message.params, identity=identity)
