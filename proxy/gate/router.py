"""The way back, for every transport alike: each message of a server goes to the call that it answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from proxy.core.json_quick import read_quickly
from proxy.wire.jsonrpc import reencode
from proxy.wire.sse_ping_carrier import carried

if TYPE_CHECKING:
    from proxy.core.model import Context, InFlightCall, JsonObject
    from proxy.gate.request import Gate

TOOLS_CHANGED = "notifications/tools/list_changed"
# Up to so many bytes the compiled reader is the quicker one: over a long text either takes long, and it spells it, too.
SHORT = 1 << 14
# It is quicker again where there is more structure than text; so many bytes are looked at for so many objects.
SAMPLE = 1 << 12
OBJECTS = SAMPLE >> 8
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Responses:
    """Takes what a server sends back, message by message.

    `exchange` is the call that the way back belongs to, where it belongs to one.
    """

    def __init__(
        self, gate: Gate, context: Context, in_flight: InFlightCall | None, seal_key: bytes | None = None
    ) -> None:
        self._gate = gate
        self.context = context
        self.in_flight = in_flight
        self._key = seal_key

    def share(self) -> None:
        """Let other workers know of the call: its answer may come to one of them."""
        if self.in_flight is not None:
            self._gate.share(self.in_flight)

    def rewrite(self, body: bytes) -> list[bytes] | None:
        """Return what to pass on in place of one message: None means as it is.

        What names a member twice is spelt anew, as it was read: a client might take the other one.
        """
        try:
            value, twice = _read(body)
        except ValueError:
            return self._unreadable(body)
        if not isinstance(value, list):
            taken = self._take(value, body)
            if taken is None:
                return [reencode(value)] if twice else None
            return [reencode(message) for message in taken]
        members = [self._take(item, body) for item in value]
        if not twice and all(taken is None for taken in members):
            return None
        kept = [[original] if taken is None else taken for taken, original in zip(members, value, strict=True)]
        return [reencode([message for messages in kept for message in messages])]

    def rewrite_whole(self, body: bytes) -> list[bytes] | None:
        """Return what to pass on in place of a whole response: one without the answer is no answer."""
        payloads = self.rewrite(body)
        if self.in_flight is None or self.in_flight.closed:
            return payloads
        refusal = self._gate.unreadable(self.in_flight)
        return payloads if refusal is None else [reencode(refusal)]

    def _unreadable(self, body: bytes) -> list[bytes] | None:
        """Pass what is not JSON, unless some reader may take it for a result that has to be looked into.

        In a session's stream all there is are messages, so what cannot be read is left out.
        """
        if self.in_flight is None:
            in_session = self.context.session is not None and self.context.transport != "websocket"
            return [] if in_session and body.strip() else None
        refusal = self._gate.unreadable(self.in_flight)
        return None if refusal is None else [reencode(refusal)]

    def _take(self, value: Any, body: bytes) -> list[Any] | None:
        if not isinstance(value, dict) or not ("result" in value or "error" in value):
            return self._take_aside(value)
        answers = carried(value.get("id"), self._key) if self._key is not None else None
        if answers is not None:
            return list(answers)
        in_flight = self._exchange_for(value.get("id"))
        if in_flight is None:
            observed = self._gate.on_unmatched_response(self.context, value)
            return self._take_aside(value) if observed is value else [observed]
        observed = self._gate.observe(in_flight, value, body)
        return None if observed is value else [observed]

    def _take_aside(self, value: Any) -> list[Any] | None:
        """Take what comes beside the answer to a call: it is masked as the answer is."""
        if self.in_flight is None:
            return None
        masked = self._gate.mask_aside(self.in_flight, value)
        return None if masked is value else [masked]

    def _exchange_for(self, message_id: object) -> InFlightCall | None:
        mine = self.in_flight
        if mine is not None and mine.message.id == message_id and type(mine.message.id) is type(message_id):
            return mine
        return self._gate.find(self.context, message_id)


class _TwiceError(Exception):
    """An object names a member twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _TwiceError
    return value


def _read(body: bytes) -> tuple[Any, bool]:
    """Return a value, and whether something in it is named twice. Raises ValueError."""
    quickly = read_quickly(body) if len(body) <= SHORT or body.count(b"{", 0, SAMPLE) >= OBJECTS else None
    if quickly is not None:
        return quickly[0], False
    try:
        return json.loads(body, object_pairs_hook=_once), False
    except _TwiceError:
        return json.loads(body), True


def subscription(in_flight: InFlightCall) -> dict[str, Any] | None:
    """Return the parameters of a notification to a `subscriptions/listen` that wants to hear of tools."""
    message = in_flight.message
    wanted = message.params.get("notifications")
    if message.method != "subscriptions/listen" or not isinstance(wanted, dict):
        return None
    return {"_meta": {SUBSCRIPTION: message.id}} if wanted.get("toolsListChanged") is True else None


def tools_changed(params: JsonObject) -> JsonObject:
    """Return the notification that says the tools changed."""
    return {"jsonrpc": "2.0", "method": TOOLS_CHANGED, "params": params}
