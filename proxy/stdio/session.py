"""One client and one server on stdio: each line either way takes the gate.

Nothing but what the gate decided on reaches the server, encoded by the gate, and in the order in which it came.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from proxy.core import reasons
from proxy.core.model import (
    Answer,
    Context,
    Denial,
    Forward,
    Held,
    InFlightCall,
    JsonObject,
    Kind,
    Message,
    MessageId,
    Pass,
    Reject,
)
from proxy.errors import WireError
from proxy.gate.refusal import sendable, withheld
from proxy.gate.router import ResponseRouter, SharedStream, tools_changed
from proxy.gate.verdict_carrier import carry_out
from proxy.wire import refusal_messages
from proxy.wire.jsonrpc import parse_json, parse_message, reencode
from proxy.wire.stdio_lines import BLANK, TooLong, as_line, edge_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.gate.gate import Gate

    type Write = Callable[[bytes], Awaitable[None]]
    type OnForward = Callable[[Message, InFlightCall], None]

log = structlog.get_logger("interlock.stdio")

_UNPLAIN = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Session:
    """Carries messages between a client and a server, whose ends are given as functions that write."""

    def __init__(
        self, gate: Gate, context: Context, to_client: Write, to_server: Write, on_forward: OnForward | None = None
    ) -> None:
        self._gate = gate
        self._on_forward = on_forward  # called with each message before it is written to the server
        self._to_client = to_client
        self._to_server = to_server
        self._shared = SharedStream()
        self._router = ResponseRouter(gate.responses, context, shared=self._shared)
        self._initialized = False
        self._shut = False
        self.bars_messages: Callable[[], bool] = lambda: False  # whether nothing but answers may pass
        self._held: set[asyncio.Task[None]] = set()

    @property
    def context(self) -> Context:
        """Who speaks to whom, in which revision as far as it is known."""
        return self._router.context

    async def from_client(self, line: bytes | TooLong) -> None:
        """Handle a line of the client's. Raises OSError where it cannot be passed on."""
        if isinstance(line, TooLong):
            await self._refuse("body_too_large", edge_id(line))
            return
        verdict = await self._gate.requests.inspect(line, self.context)
        await carry_out(verdict, _StdioCarrier(self, line))

    def hold(self, verdict: Held, line: bytes) -> None:
        """Wait for people to decide on a call, beside the lines that follow."""
        task = asyncio.create_task(self._wait(verdict, line))
        self._held.add(task)
        task.add_done_callback(self._held.discard)

    async def _wait(self, verdict: Held, line: bytes) -> None:
        try:
            await carry_out(await verdict.wait(_StdioCaller(self)), _StdioCarrier(self, line))
        except OSError as error:
            log.info("a pipe was closed", error=str(error))
        except Exception as error:
            log.exception("a held call is dropped", server=self.context.server, exc_info=error)

    def close(self) -> None:
        """Let no call go on that waits: the client is gone, or the server is."""
        for task in tuple(self._held):
            task.cancel()

    async def forward(self, message: Message, in_flight: InFlightCall) -> None:
        """Write a message that the gate has let pass to the server. Raises OSError where that takes no more."""
        line = as_line(message.value)
        self._initialized = self._initialized or message.method == "notifications/initialized"
        # Before it is written: the server may answer before the write returns.
        self._router.expect(message, in_flight)
        if self._on_forward is not None:
            self._on_forward(message, in_flight)
        try:
            await self._to_server(line)
        except OSError:
            self._gate.responses.abandon(in_flight, "upstream_error")
            raise

    async def answer(self, *replies: JsonObject) -> None:
        if replies:
            await self._to_client(b"".join(reencode(reply) + b"\n" for reply in replies))

    async def refuse_foreign(self, line: bytes) -> None:
        """Refuse what is not MCP: stdio carries nothing else. A request is answered so."""
        try:
            message = parse_message(parse_json(line))
        except WireError:
            await self._refuse("not_mcp")
        else:
            await self._refuse("not_mcp", message.id if message.kind is Kind.REQUEST else None, message.method)

    async def _refuse(self, reason: str, message_id: MessageId | None = None, method: str | None = None) -> None:
        """Record a line that is left out; answer it where it has an id."""
        named = {"method": method[:60]} if method else {}
        audit_id = self._gate.recorder.record_refusal("line_refused", reason, self.context, **named)
        if message_id is not None:
            text = f"{reasons.explain(reason, repr(method) if method else 'the message')} Audit id: {audit_id}."
            denial = Denial(reason, sendable(text), audit_id=audit_id, respond="error")
            await self.answer(refusal_messages.refuse(message_id, method, denial))

    async def shut(self, denial: Callable[[InFlightCall], Denial]) -> None:
        """Pass on nothing more of the server's, and refuse the calls under way. Raises OSError as `answer` does."""
        self._shut = True
        replies: list[JsonObject] = []
        for call in self._gate.in_flight.under_way():
            message = call.message
            self._gate.responses.abandon(call, "withheld")
            if message.id is not None:
                replies.append(refusal_messages.refuse(message.id, message.method, denial(call), message.params))
        await self.answer(*replies)

    def _leaves_out(self, line: bytes | TooLong) -> bool:
        """Return whether a line may not pass because it might say what a withheld answer would have."""
        if self._shut:
            return True
        if isinstance(line, TooLong) or not self.bars_messages():
            return False
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return False  # answered or left out as any line that cannot be read
        if not isinstance(value, dict) or "method" in value or not ("result" in value or "error" in value):
            return True
        return self._gate.in_flight.find(self.context, value.get("id")) is None

    async def from_server(self, line: bytes | TooLong) -> None:
        """Handle a line of the server's. Raises OSError where the client takes no more."""
        if self._leaves_out(line):
            log.warning("a line of the server's is left out while an answer is withheld", server=self.context.server)
            return
        if isinstance(line, TooLong):
            self._gate.recorder.record_refusal("line_refused", "event_too_large", self.context)
            await self._withhold(line, "event_too_large")
            return
        try:
            lines = await self._gate.threads.run(len(line), self._take, line.strip(BLANK))
            lines = await self._router.store_marks(lines) or []
        except Exception as error:
            log.exception("a line of the server's cannot be taken", server=self.context.server, exc_info=error)
            lines = []
        if lines:
            await self._to_client(b"".join(each + b"\n" for each in lines))
        else:
            log.warning("a line that the server wrote to stdout is left out", server=self.context.server)
            await self._withhold(line, "unreadable_response")

    def _take(self, line: bytes) -> list[bytes]:
        """Return the lines to pass on in place of one of the server's."""
        lines = self._router.rewrite(line)
        if lines is not None:
            return lines
        # Some clients end a line at a bare CR or a form feed, and would read two messages in what we read as one.
        return [reencode(json.loads(line))] if _UNPLAIN.search(line) else [line]

    async def _withhold(self, line: bytes | TooLong, reason: str) -> None:
        """Answer the call whose answer cannot be passed on, where its id can be found."""
        in_flight = self._gate.in_flight.find(self.context, edge_id(line))
        if in_flight is None or in_flight.closed or in_flight.message.id is None:
            return
        self._gate.responses.abandon(in_flight, "unreadable")
        message = in_flight.message
        denial = withheld(reason, message.method, in_flight.call_id)
        await self.answer(refusal_messages.refuse(in_flight.message.id, message.method, denial, message.params))

    async def tools_changed(self) -> None:
        """Notify the client that tools changed, in the way of its revision."""
        session: list[JsonObject] = [{}] if self._initialized else []
        await self.answer(*(tools_changed(params) for params in [*session, *self._shared.subscriptions()]))


@dataclass(frozen=True, slots=True)
class _StdioCarrier:
    session: Session
    line: bytes  # of the client's, on which the verdict is

    async def forward(self, verdict: Forward) -> None:
        await self.session.forward(verdict.message, verdict.in_flight)

    async def answer(self, verdict: Answer) -> None:
        await self.session.answer(*verdict.replies)

    async def reject(self, verdict: Reject) -> None:
        denial = verdict.denial
        log.warning("a line of the client's is refused", reason=denial.reason, audit_id=denial.audit_id)

    async def let_pass(self, verdict: Pass) -> None:  # noqa: ARG002  nothing is put in over stdio
        await self.session.refuse_foreign(self.line)

    async def hold(self, verdict: Held) -> None:
        self.session.hold(verdict, self.line)


@dataclass(frozen=True, slots=True)
class _StdioCaller:
    session: Session

    @property
    def takes_progress(self) -> bool:
        return True

    def gone(self) -> bool:
        return False  # the session ends with its client, and with the session what waits

    async def send(self, notification: JsonObject) -> None:
        await self.session.answer(notification)
