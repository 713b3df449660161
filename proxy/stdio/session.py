"""One client and one server on stdio: each line either way takes the gate.

Nothing but what the gate decided on reaches the server, in the gate's own
spelling, and in the order in which it came.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from proxy.core import reasons
from proxy.core.model import Answer, Denial, Forward, InFlightCall, Kind, Message, Pass, Reject
from proxy.errors import WireError
from proxy.gate.refusal import sendable, withheld
from proxy.gate.router import SUBSCRIPTION, Responses, subscription, tools_changed
from proxy.wire import refusal_messages
from proxy.wire.jsonrpc import parse_json, parse_message, reencode
from proxy.wire.mcp import PROTOCOL_VERSION
from proxy.wire.stdio_lines import BLANK, TooLong, as_line, edge_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.core.model import Context, JsonObject, MessageId, Redaction
    from proxy.gate.request import Gate

    type Write = Callable[[bytes], Awaitable[None]]
    type Asked = Callable[[Message, InFlightCall, int], None]

log = structlog.get_logger("interlock.stdio")

_UNPLAIN = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Session:
    """Carries messages between a client and a server, whose ends are given as functions that write.

    `asked` is told of each message, with the size of its line, before it is written to the server.
    """

    def __init__(
        self, gate: Gate, context: Context, to_client: Write, to_server: Write, asked: Asked | None = None
    ) -> None:
        self._gate = gate
        self._asked = asked
        self._to_client = to_client
        self._to_server = to_server
        self._answers = Answers(gate, context)
        self._initialized = False

    @property
    def context(self) -> Context:
        """Who speaks to whom, in which revision as far as it is known."""
        return self._answers.context

    async def from_client(self, line: bytes | TooLong) -> None:
        """Take a line of the client's. Raises OSError where it cannot be passed on."""
        if isinstance(line, TooLong):
            await self._refuse("body_too_large", edge_id(line))
            return
        verdict = await self._gate.inspect(line, self.context)
        match verdict:
            case Forward(message=message, in_flight=in_flight):
                await self._forward(message, in_flight)
            case Answer(replies=replies):
                await self._answer(*replies)
            case Reject(denial=denial):
                log.warning("a line of the client's is refused", reason=denial.reason, audit_id=denial.audit_id)
            case Pass():
                await self._refuse_foreign(line)
            case _:
                raise TypeError(f"unknown verdict {verdict!r}")

    async def _forward(self, message: Message, in_flight: InFlightCall) -> None:
        line = as_line(message.value)
        self._initialized = self._initialized or message.method == "notifications/initialized"
        self._answers.expect(message, in_flight)
        if self._asked is not None:
            self._asked(message, in_flight, len(line))
        try:
            await self._to_server(line)
        except OSError:
            self._gate.abandon(in_flight, "upstream_error")
            raise

    async def _answer(self, *replies: JsonObject) -> None:
        if replies:
            await self._to_client(b"".join(reencode(reply) + b"\n" for reply in replies))

    async def _refuse_foreign(self, line: bytes) -> None:
        """Refuse what is not MCP: stdio carries nothing else. A request is told so."""
        try:
            message = parse_message(parse_json(line))
        except WireError:
            await self._refuse("not_mcp")
        else:
            await self._refuse("not_mcp", message.id if message.kind is Kind.REQUEST else None, message.method)

    async def _refuse(self, reason: str, message_id: MessageId | None = None, method: str | None = None) -> None:
        """Record a line that is left out; answer it where it has an id."""
        audit_id = self._gate.note("line_refused", reason, self.context, **({"method": method[:60]} if method else {}))
        if message_id is not None:
            text = f"{reasons.explain(reason, repr(method) if method else 'the message')} Audit id: {audit_id}."
            denial = Denial(reason, sendable(text), audit_id=audit_id, respond="error")
            await self._answer(refusal_messages.refuse(message_id, method, denial))

    async def from_server(self, line: bytes | TooLong) -> None:
        """Take a line of the server's. Raises OSError where the client takes no more."""
        if isinstance(line, TooLong):
            self._gate.note("line_refused", "event_too_large", self.context)
            await self._withhold(line, "event_too_large")
            return
        try:
            lines = await self._gate.in_thread(len(line), partial(self._answers.take, line.strip(BLANK)))
        except Exception as error:
            log.exception("a line of the server's cannot be taken", server=self.context.server, exc_info=error)
            lines = []
        if lines:
            await self._to_client(b"".join(each + b"\n" for each in lines))
        else:
            log.warning("a line that the server wrote to stdout is left out", server=self.context.server)
            await self._withhold(line, "unreadable_response")

    async def _withhold(self, line: bytes | TooLong, reason: str) -> None:
        """Answer the call whose answer cannot be given on, where it can be told which that is."""
        in_flight = self._gate.find(self.context, edge_id(line))
        if in_flight is None or in_flight.closed or in_flight.message.id is None:
            return
        self._gate.abandon(in_flight, "unreadable")
        message = in_flight.message
        denial = withheld(reason, message.method, in_flight.call_id)
        await self._answer(refusal_messages.refuse(in_flight.message.id, message.method, denial, message.params))

    async def tools_changed(self) -> None:
        """Tell the client to list the tools again, in the way of its revision."""
        told: list[JsonObject] = [{}] if self._initialized else []
        await self._answer(*(tools_changed(params) for params in [*told, *self._answers.subscriptions()]))


class Answers(Responses):
    """The way back on stdio, where whatever a server says comes on one stream.

    What belongs to no call is masked as the results of every call so far are: it
    may speak of any of them.
    """

    def __init__(self, gate: Gate, context: Context) -> None:
        super().__init__(gate, context, None)
        self._redactions: dict[Redaction, None] = {}
        self._beside: InFlightCall | None = None
        self._listening: dict[MessageId, InFlightCall] = {}
        self._begun: set[MessageId] = set()

    def expect(self, message: Message, in_flight: InFlightCall) -> None:
        """Learn what a message on its way to the server means for what comes back."""
        self._learn_revision(message.params.get("_meta"), PROTOCOL_VERSION)
        in_flight.context = self.context
        if message.id is not None and subscription(in_flight) is not None:
            self._listening[message.id] = in_flight
        new = {redaction: None for redaction in in_flight.decision.redactions if redaction not in self._redactions}
        if new:
            self._redactions |= new
            # A refusal that masking failed would answer this id, which is nobody's.
            nobody = Message(Kind.REQUEST, {}, None, f"beside {in_flight.call_id}")
            decision = replace(in_flight.decision, redactions=tuple(self._redactions))
            self._beside = replace(in_flight, message=nobody, decision=decision)

    def take(self, line: bytes) -> list[bytes]:
        """Return the lines to pass on in place of one of the server's."""
        lines = self.rewrite(line)
        if lines is not None:
            return lines
        return [reencode(json.loads(line))] if _UNPLAIN.search(line) else [line]

    def subscriptions(self) -> list[JsonObject]:
        """Return the parameters of a notification for each subscription that the server has taken up."""
        self._listening = {number: each for number, each in self._listening.items() if not each.closed}
        self._begun &= self._listening.keys()
        told = (subscription(each) for number, each in self._listening.items() if number in self._begun)
        return [params for params in told if params is not None]

    def _take(self, value: Any, body: bytes) -> list[Any] | None:
        if not isinstance(value, dict):
            return []
        in_flight = self._gate.find(self.context, value.get("id"))
        if in_flight is not None and in_flight.message.method == "initialize":
            self._learn_revision(value.get("result"), "protocolVersion")
        return super()._take(value, body)

    def _take_aside(self, value: Any) -> list[Any] | None:
        self._note_subscription(value)
        beside = self._beside
        if beside is None:
            return None
        masked = self._gate.mask_aside(beside, value)
        if masked is value:
            return None
        failed = isinstance(masked, dict) and masked.get("id") == beside.message.id
        return [] if failed else [masked]

    def _learn_revision(self, said: Any, key: str) -> None:
        revision = said.get(key) if isinstance(said, dict) else None
        if isinstance(revision, str) and revision != self.context.revision:
            self.context = replace(self.context, revision=revision[:40])

    def _note_subscription(self, value: JsonObject) -> None:
        params = value.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        number = meta.get(SUBSCRIPTION) if isinstance(meta, dict) else None
        if isinstance(number, str | int) and number in self._listening:
            self._begun.add(number)
