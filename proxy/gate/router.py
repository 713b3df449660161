"""The one router: each message of a server goes to the call that it answers, on HTTP, WebSocket and stdio alike."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from proxy.core.json_codec import read_quickly
from proxy.core.model import Context, InFlightCall, JsonObject, Kind, Message, MessageId, Redaction
from proxy.errors import StoreUnavailableError
from proxy.wire.jsonrpc import reencode
from proxy.wire.mcp import PROTOCOL_VERSION
from proxy.wire.sse_ping_carrier import PREFIX, carried

if TYPE_CHECKING:
    from proxy.core.flows import Mark
    from proxy.gate.response import ResponseGate

log = structlog.get_logger("interlock.gate")

TOOLS_CHANGED = "notifications/tools/list_changed"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
# Up to so many bytes the compiled reader is the faster one. Of a long text it makes a copy to compare with, which
# takes longer than reading it with `json`.
SHORT = 1 << 14
# It is faster again where there is more structure than text, or few escapes in the text: where the first SAMPLE bytes
# begin so many objects, or have so few backslashes.
SAMPLE = 1 << 12
OBJECTS = SAMPLE >> 8
ESCAPES = SAMPLE >> 5


class SharedStream:
    """What one stream that carries the answers to every call has to remember: stdio."""

    # What belongs to no call is masked as the results of every call so far are: it may speak of any of them.

    def __init__(self) -> None:
        self._redactions: dict[Redaction, None] = {}
        self._listening: dict[MessageId, InFlightCall] = {}
        self._begun: set[MessageId] = set()
        self.beside: InFlightCall | None = None  # stands for all calls so far, with the redactions of all of them

    def add(self, message: Message, in_flight: InFlightCall) -> None:
        """Learn what a message on its way to the server means for what comes back."""
        if message.id is not None and subscription(in_flight) is not None:
            self._listening[message.id] = in_flight
        if new := {redaction: None for redaction in in_flight.decision.redactions if redaction not in self._redactions}:
            self._redactions |= new
            # Where masking fails, the refusal answers this id. No client uses it, so `is_refusal` recognises it.
            nobody = Message(Kind.REQUEST, {}, None, f"beside {in_flight.call_id}")
            decision = replace(in_flight.decision, redactions=tuple(self._redactions))
            self.beside = replace(in_flight, message=nobody, decision=decision)

    def is_refusal(self, masked: Any) -> bool:
        """Return whether `masked` is a refusal, which no client waits for."""
        return self.beside is not None and isinstance(masked, dict) and masked.get("id") == self.beside.message.id

    def note_subscription(self, value: Any) -> None:
        """Note that the server has taken up the subscription that a message is for."""
        params = value.get("params") if isinstance(value, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        number = meta.get(SUBSCRIPTION) if isinstance(meta, dict) else None
        if isinstance(number, str | int) and number in self._listening:
            self._begun.add(number)

    def subscriptions(self) -> list[JsonObject]:
        """Return the parameters of a notification for each subscription that the server has taken up."""
        self._listening = {number: each for number, each in self._listening.items() if not each.closed}
        self._begun &= self._listening.keys()
        params = (subscription(each) for number, each in self._listening.items() if number in self._begun)
        return [each for each in params if each is not None]


class ResponseRouter:
    """Takes what a server sends back, message by message.

    `in_flight` is the call that an HTTP response belongs to. `seal_key` opens answers of our own that a legacy
    server carries to the client. `shared` is there where one stream carries the answers to every call.
    """

    def __init__(
        self,
        responses: ResponseGate,
        context: Context,
        in_flight: InFlightCall | None = None,
        seal_key: bytes | None = None,
        shared: SharedStream | None = None,
    ) -> None:
        self._responses = responses
        self.context = context
        self.in_flight = in_flight
        self._key = seal_key
        self._shared = shared
        self._stand_in: InFlightCall | None = None  # for messages on a stream that belongs to no call
        self._labelled: set[tuple[str, ...]] = set()  # labels of messages beside answers
        self._last: object = None  # the id of the last response
        self._encoded: tuple[Any, bytes] | None = None  # what was encoded for its digest, until it is passed on
        self.marks: list[Mark] = []  # what has to be stored before what was rewritten is passed on

    def share(self) -> None:
        """Let other workers know of the call: its answer may come to one of them."""
        if self.in_flight is not None:
            self._responses.share(self.in_flight)

    def expect(self, message: Message, in_flight: InFlightCall) -> None:
        """Learn of a message on its way to the server, on a shared stream."""
        assert self._shared is not None
        self._learn_revision(message.params.get("_meta"), PROTOCOL_VERSION)
        in_flight.context = self.context
        self._shared.add(message, in_flight)

    def rewrite(self, body: bytes) -> list[bytes] | None:
        """Return what to pass on in place of one message: None means as it is."""
        # What names a member twice is encoded anew, as it was read: a client might take the other one.
        try:
            value, twice = _read(body)
        except ValueError:
            return self._unreadable(body)
        if not isinstance(value, list):
            if (taken := self._take(value, body)) is None:
                return [reencode(value)] if twice else None
            return [self._encode(message) for message in taken]
        members = [self._take(item, body) for item in value]
        if not twice and all(taken is None for taken in members):
            return None
        passed = [[original] if taken is None else taken for taken, original in zip(members, value, strict=True)]
        return [reencode([message for messages in passed for message in messages])]

    def rewrite_whole(self, body: bytes) -> list[bytes] | None:
        """Return what to pass on in place of a whole HTTP response; one without the answer counts as unreadable."""
        payloads = self.rewrite(body)
        if self.in_flight is None or self.in_flight.closed:
            return payloads
        refusal = self._responses.unreadable(self.in_flight)
        return payloads if refusal is None else [reencode(refusal)]

    def _unreadable(self, body: bytes) -> list[bytes] | None:
        """Pass what is not JSON, unless some reader may take it for a result that has to be masked."""
        # A session's stream carries messages only, so what cannot be read is left out of it.
        if self.in_flight is None:
            in_session = self.context.session is not None and self.context.transport != "websocket"
            return [] if in_session and body.strip() else None
        refusal = self._responses.unreadable(self.in_flight)
        return None if refusal is None else [reencode(refusal)]

    def _take(self, value: Any, body: bytes) -> list[Any] | None:
        """Return what to pass on in place of one parsed message: None means as it is."""
        if not isinstance(value, dict):
            # On a shared stream there is nothing but messages, and a message is an object.
            return [] if self._shared is not None else self._take_aside(value)
        if self._is_message(value) and (taken := self._responses.take_message(self.context, value)) is not None:
            return taken
        if not ("result" in value or "error" in value):
            return self._take_aside(value)
        self._last = message_id = value.get("id")
        if self._key is not None and isinstance(message_id, str) and message_id.startswith(PREFIX):
            answers = carried(message_id, self._key)
            if answers is not None:
                return list(answers)
        if (in_flight := self._call_of(message_id)) is None:
            observed = self._responses.on_unmatched_response(self.context, value)
            self._bring(self._responses.stand_in(self.context, None), observed)
            return self._take_aside(value) if observed is value else [observed]
        if self._shared is not None and in_flight.message.method == "initialize":
            self._learn_revision(value.get("result"), "protocolVersion")
        observed = self._responses.observe(in_flight, value, body, self._encode_to_pass)
        self._bring(in_flight, observed)
        return None if observed is value else [observed]

    def _encode_to_pass(self, value: Any) -> bytes:
        encoded = reencode(value)
        self._encoded = value, encoded
        return encoded

    def _encode(self, value: Any) -> bytes:
        """Return `value` encoded: once, where it was encoded to be passed on."""
        known, self._encoded = self._encoded, None
        return known[1] if known is not None and known[0] is value else reencode(value)

    def _bring(self, in_flight: InFlightCall, value: Any) -> None:
        self.marks.extend(self._responses.bring(in_flight, value))

    def _bring_aside(self, in_flight: InFlightCall, value: Any) -> None:
        """Take the labels of what comes beside an answer: once, where nothing of its content is kept."""
        for mark in self._responses.bring(in_flight, value):
            if mark.shingles or mark.values or mark.labels not in self._labelled:
                self._labelled.add(mark.labels)
                self.marks.append(mark)

    async def store_marks(self, payloads: list[bytes] | None) -> list[bytes] | None:
        """Return what to pass on, as `rewrite` gave it, once what it brings is stored; a refusal where that fails."""
        marks, self.marks = self.marks, []
        if not marks:
            return payloads
        try:
            await self._responses.store(marks)
        except StoreUnavailableError as error:
            log.warning("a result is withheld: its labels cannot be stored", error=str(error))
            refusal = self._responses.unstored(self.in_flight or self._responses.find(self.context, self._last))
            return [] if refusal is None else [reencode(refusal)]
        return payloads

    def _take_aside(self, value: Any) -> list[Any] | None:
        """Take what comes beside the answer to a call: it is masked as the answer is."""
        beside, shared = self.in_flight, self._shared
        if shared is not None:
            shared.note_subscription(value)
            beside = shared.beside
        if beside is None:
            return self._take_unrelated(value)
        masked = self._responses.mask_aside(beside, value)
        self._bring_aside(beside if shared is None else self._responses.stand_in(self.context, None), masked)
        if masked is value:
            return None
        return [] if shared is not None and shared.is_refusal(masked) else [masked]

    def _take_unrelated(self, value: Any) -> list[Any] | None:
        """Take what comes on a stream that belongs to no call: it may speak of any of them."""
        if not self._is_message(value):
            return None
        self._stand_in = self._responses.stand_in(self.context, self._stand_in)
        masked = self._responses.mask_aside(self._stand_in, value)
        self._bring_aside(self._stand_in, masked)
        if masked is value:
            return None
        return [] if masked.get("id") == self._stand_in.message.id else [masked]

    def _is_message(self, value: Any) -> bool:
        """Return whether a value is a message of MCP, and not what another protocol sends as JSON."""
        if not isinstance(value, dict):
            return False
        in_session = self.context.session is not None and self.context.transport != "websocket"
        return in_session or self.in_flight is not None or "jsonrpc" in value

    def _call_of(self, message_id: object) -> InFlightCall | None:
        mine = self.in_flight
        # The types too: to Python 1 == 1.0 == True, and to the client these may be three ids.
        if mine is not None and mine.message.id == message_id and type(mine.message.id) is type(message_id):
            return mine
        return self._responses.find(self.context, message_id)

    def _learn_revision(self, said: Any, key: str) -> None:
        revision = said.get(key) if isinstance(said, dict) else None
        if isinstance(revision, str) and revision != self.context.revision:
            self.context = replace(self.context, revision=revision[:40])  # the peer's own word, so bounded


class _TwiceError(Exception):
    """An object names a member twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _TwiceError
    return value


def _read(body: bytes) -> tuple[Any, bool]:
    """Return a value, and whether something in it is named twice. Raises ValueError."""
    quickly = len(body) <= SHORT or body.count(b"{", 0, SAMPLE) >= OBJECTS or body.count(b"\\", 0, SAMPLE) <= ESCAPES
    fast = read_quickly(body) if quickly else None
    if fast is not None:
        return fast[0], False
    try:
        return json.loads(body, object_pairs_hook=_once), False
    except _TwiceError:
        return json.loads(body), True


def subscription(in_flight: InFlightCall) -> dict[str, Any] | None:
    """Return the parameters of a notification to a `subscriptions/listen` for changes of tools; None for others."""
    message = in_flight.message
    wanted = message.params.get("notifications")
    if message.method != "subscriptions/listen" or not isinstance(wanted, dict):
        return None
    return {"_meta": {SUBSCRIPTION: message.id}} if wanted.get("toolsListChanged") is True else None


def tools_changed(params: JsonObject) -> JsonObject:
    """Return the notification that says the tools changed."""
    return {"jsonrpc": "2.0", "method": TOOLS_CHANGED, "params": params}
