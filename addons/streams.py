"""Rewrites a server's event stream as it passes: each event leaves as soon as it is whole."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from addons.http_flows import legacy_session
from proxy.wire.jsonrpc import respell
from proxy.wire.legacy import carried
from proxy.wire.sse import Event, Splitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.gate import Gate
    from proxy.model import Context, Exchange, JsonObject
    from proxy.wire.encoding import Inflater

TOOLS_CHANGED = "notifications/tools/list_changed"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Responses:
    """Takes what a server sends back, message by message."""

    def __init__(self, gate: Gate, context: Context, exchange: Exchange | None, seal_key: bytes) -> None:
        self._gate = gate
        self.context = context
        self.exchange = exchange
        self._key = seal_key

    def rewrite(self, body: bytes) -> list[bytes] | None:
        """Give what to pass on in place of one message: None means as it is."""
        try:
            value = json.loads(body)
        except ValueError:
            return self._unreadable(body)
        values = value if isinstance(value, list) else [value]
        taken = [self._take(item, body) for item in values]
        if all(item is None for item in taken):
            return None
        kept = [[original] if item is None else item for item, original in zip(taken, values, strict=True)]
        flat = [message for messages in kept for message in messages]
        return [respell(flat)] if isinstance(value, list) else [respell(message) for message in flat]

    def rewrite_whole(self, body: bytes) -> list[bytes] | None:
        """Give what to pass on in place of a whole response: one without the answer is no answer."""
        payloads = self.rewrite(body)
        if self.exchange is None or self.exchange.closed:
            return payloads
        refusal = self._gate.unreadable(self.exchange)
        return payloads if refusal is None else [respell(refusal)]

    def _unreadable(self, body: bytes) -> list[bytes] | None:
        """Pass what is not JSON, unless some reader may take it for a result that has to be looked into.

        In a session's stream all there is are messages, so what cannot be read is left out.
        """
        if self.exchange is None:
            in_session = self.context.session is not None and self.context.transport != "websocket"
            return [] if in_session and body.strip() else None
        refusal = self._gate.unreadable(self.exchange)
        return None if refusal is None else [respell(refusal)]

    def _take(self, value: Any, body: bytes) -> list[Any] | None:
        if not isinstance(value, dict) or not ("result" in value or "error" in value):
            return self._take_aside(value)
        answers = carried(value.get("id"), self._key)
        if answers is not None:
            return list(answers)
        exchange = self._exchange_for(value.get("id"))
        if exchange is None:
            observed = self._gate.overhear(self.context, value)
            return self._take_aside(value) if observed is value else [observed]
        observed = self._gate.observe(exchange, value, body)
        return None if observed is value else [observed]

    def _take_aside(self, value: Any) -> list[Any] | None:
        """Take what comes beside the answer to a call: it is masked as the answer is."""
        if self.exchange is None:
            return None
        masked = self._gate.mask_aside(self.exchange, value)
        return None if masked is value else [masked]

    def _exchange_for(self, message_id: object) -> Exchange | None:
        mine = self.exchange
        if mine is not None and mine.message.id == message_id and type(mine.message.id) is type(message_id):
            return mine
        return self._gate.find(self.context, message_id)


class EventStream:
    """One `text/event-stream` response on its way to the client."""

    def __init__(self, responses: Responses, url: str, limit: int, inflater: Inflater | None = None) -> None:
        self._responses = responses
        self._url = url
        self._splitter = Splitter(limit)
        self._inflater = inflater
        self._begun = False
        self.on_endpoint: Callable[[str, str], None] | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Give what to pass on for `chunk`. Raises where the stream cannot be read."""
        if self._inflater is not None:
            chunk = self._inflater.feed(chunk)
        return b"".join(self._pass_on(event) for event in self._splitter.feed(chunk))

    @property
    def waiting(self) -> int:
        """How many bytes of an event have come that is not whole yet; at the end of a stream they are dropped."""
        return self._splitter.waiting

    def tools_changed(self, server: str | None) -> bytes | None:
        """Give the event that says the tools changed; None where this stream may not carry it.

        It may where it is a session's own stream, or one that subscribed to this
        and was told so. `server` limits it to the streams of one.
        """
        context, exchange = self._responses.context, self._responses.exchange
        if server not in (None, context.server):
            return None
        if exchange is None:
            params: dict[str, Any] | None = {} if context.session is not None else None
        else:
            params = _subscription(exchange) if self._begun else None
        if params is None:
            return None
        message: JsonObject = {"jsonrpc": "2.0", "method": TOOLS_CHANGED, "params": params}
        return b"event: message\ndata: " + respell(message) + b"\n\n"

    def _pass_on(self, event: Event) -> bytes:
        if event.data is None:
            return event.raw
        self._begun = True
        if event.event == "endpoint" and self._responses.exchange is None:
            self._learn_session(event.data)
            return event.raw
        payloads = self._responses.rewrite(event.data.encode())
        return event.raw if payloads is None else event.with_data(payloads)

    def _learn_session(self, endpoint: str) -> None:
        """Take a legacy stream's message endpoint, where its calls are POSTed to, as its session."""
        target = urlsplit(urljoin(self._url, endpoint))
        path = target.path + (f"?{target.query}" if target.query else "")
        session = legacy_session(path) or path
        self._responses.context = replace(self._responses.context, session=session, transport="sse")
        if self.on_endpoint is not None:
            self.on_endpoint(self._responses.context.server, path)


def _subscription(exchange: Exchange) -> dict[str, Any] | None:
    """Give the parameters of a notification to a `subscriptions/listen` that wants to hear of tools."""
    message = exchange.message
    wanted = message.params.get("notifications")
    if message.method != "subscriptions/listen" or not isinstance(wanted, dict):
        return None
    return {"_meta": {SUBSCRIPTION: message.id}} if wanted.get("toolsListChanged") is True else None
