"""Carries WebSocket messages to the gate, and its verdicts back. Whatever fails drops the message."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from addons import flow_state as flows
from proxy.core.model import Forward
from proxy.gate.outbound_scan import remember
from proxy.gate.router import ResponseRouter
from proxy.gate.verdict_carrier import carry_out
from proxy.wire.jsonrpc import serialise

if TYPE_CHECKING:
    from mitmproxy import http
    from mitmproxy.websocket import WebSocketMessage

    from addons.connections import ConnectionGuard
    from proxy.core.model import Answer, Context, Held, JsonObject, Pass, Reject
    from proxy.gate.gate import Gate

log = structlog.get_logger("interlock.http")


class WebsocketGate:
    """The addon that every WebSocket message passes."""

    def __init__(self, gate: Gate, limit: int, seal_key: bytes, connections: ConnectionGuard) -> None:
        self._gate = gate
        self._limit = limit
        self._key = seal_key
        self._connections = connections

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """Record the calls that the end of a WebSocket leaves without an answer, and let none go on that waits."""
        for task in tuple(flows.state_of(flow).held or ()):
            task.cancel()
        self._gate.responses.abandon_session(_context(flow))

    async def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Decide what becomes of a WebSocket message."""
        assert flow.websocket is not None
        message = flow.websocket.messages[-1]
        del flow.websocket.messages[:-1]
        if message.injected:
            return
        await asyncio.sleep(0)  # others have their turn between messages that came at once
        try:
            await self._take(flow, message)
        except Exception as error:
            log.exception("a WebSocket message is dropped", server=flows.server_name(flow), exc_info=error)
            message.drop()

    async def _take(self, flow: http.HTTPFlow, message: WebSocketMessage) -> None:
        if len(message.content) > self._limit:
            self._refuse(flow, message, "event_too_large")
            return
        if message.from_client and self._connections.stopping:
            self._refuse(flow, message, "stopping")
            return
        context = _context(flow)
        if not message.from_client:
            if (mask := self._gate.reflections.current()) is not None:
                message.content = mask.apply(message.content)
            router = ResponseRouter(self._gate.responses, context, None, self._key)
            payloads = await router.store_marks(router.rewrite(message.content))
            if payloads:
                message.content = payloads[0]
            elif payloads is not None:
                message.drop()
            return
        carrier = _WebsocketCarrier(self._gate, flow, message)
        verdict = await self._gate.requests.inspect(message.content, context, stream=flows.state_of(flow).stream)
        await carry_out(verdict, carrier)

    def _refuse(self, flow: http.HTTPFlow, message: WebSocketMessage, reason: str) -> None:
        message.drop()
        self._gate.recorder.record_refusal("request_refused", reason, flows.context(flow))
        _inject(flow, flows.refusal_body(flows.denial(reason, "the message")), is_text=message.is_text)


class _WebsocketCarrier:
    """Carries out the verdict on one message of the client's."""

    def __init__(self, gate: Gate, flow: http.HTTPFlow, message: WebSocketMessage) -> None:
        self._gate = gate
        self._flow = flow
        self._message = message

    async def forward(self, verdict: Forward) -> None:
        flows.state_of(self._flow).stream.speaks_mcp = True
        self._message.content = await self._encode(verdict)

    async def _encode(self, verdict: Forward) -> bytes:
        """Return what is sent of a message: with its credentials, if it has any."""
        if verdict.filling is not None and verdict.filling.body is not None:
            return verdict.filling.body.reveal()
        return await self._gate.requests.encode(verdict)

    async def answer(self, verdict: Answer) -> None:
        self._message.drop()
        for reply in verdict.replies:
            _inject(self._flow, serialise(reply), is_text=self._message.is_text)

    async def reject(self, verdict: Reject) -> None:
        self._message.drop()
        _inject(self._flow, flows.refusal_body(verdict.denial), is_text=self._message.is_text)

    async def hold(self, verdict: Held) -> None:
        """Wait beside the messages that follow: a WebSocket carries many calls."""
        self._message.drop()
        task = asyncio.create_task(self._wait(verdict))
        state = flows.state_of(self._flow)
        held = state.held = state.held or set()
        held.add(task)
        task.add_done_callback(held.discard)

    async def _wait(self, verdict: Held) -> None:
        try:
            final = await verdict.wait(_WebsocketCaller(self._flow, is_text=self._message.is_text))
            if isinstance(final, Forward):
                body = await self._encode(final)
                _inject(self._flow, body, is_text=self._message.is_text, to_client=False)
            else:
                await carry_out(final, self)
        except Exception as error:
            log.exception("a held message is dropped", server=flows.server_name(self._flow), exc_info=error)

    async def let_pass(self, verdict: Pass) -> None:
        # What passes is remembered: a secret or a call may be sent in two messages, half of it in each.
        stream = flows.state_of(self._flow).stream
        remember(stream, self._message.content)
        stream.passed(self._message.content)
        if verdict.filling is not None and verdict.filling.body is not None:
            self._message.content = verdict.filling.body.reveal()


class _WebsocketCaller:
    """The client of a message that is held."""

    def __init__(self, flow: http.HTTPFlow, *, is_text: bool) -> None:
        self._flow = flow
        self._is_text = is_text

    @property
    def takes_progress(self) -> bool:
        return True

    def gone(self) -> bool:
        websocket = self._flow.websocket
        return websocket is None or websocket.timestamp_end is not None

    async def send(self, notification: JsonObject) -> None:
        _inject(self._flow, serialise(notification), is_text=self._is_text)


def _context(flow: http.HTTPFlow) -> Context:
    return replace(flows.context(flow), transport="websocket", session=flow.id, target="")


def _inject(flow: http.HTTPFlow, body: bytes, *, is_text: bool, to_client: bool = True) -> None:
    from mitmproxy import ctx  # noqa: PLC0415  the master exists once the daemon runs

    ctx.master.commands.call("inject.websocket", flow, to_client, body, is_text)
