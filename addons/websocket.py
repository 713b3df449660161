"""Carries WebSocket messages to the gate, and its verdicts back. Whatever fails drops the message."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from addons import flow_state as flows
from proxy.core.model import Answer, Context, Forward, Pass, Reject
from proxy.gate.outbound_scan import last_words
from proxy.gate.router import Responses
from proxy.wire.jsonrpc import serialise

if TYPE_CHECKING:
    from collections.abc import Callable

    from mitmproxy import http
    from mitmproxy.websocket import WebSocketMessage

    from proxy.gate.request import Gate

log = structlog.get_logger("interlock.http")


class WebsocketGate:
    """The addon that every WebSocket message passes."""

    def __init__(self, gate: Gate, limit: int, seal_key: bytes, is_stopping: Callable[[], bool]) -> None:
        self._gate = gate
        self._limit = limit
        self._key = seal_key
        self._is_stopping = is_stopping

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """Record the calls that the end of a WebSocket leaves without an answer."""
        self._gate.abandon_session(_context(flow))

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
            message.drop()
            self._gate.note("request_refused", "event_too_large", flows.context(flow))
            _inject(flow, flows.refusal_body(flows.denial("event_too_large", "the message")), is_text=message.is_text)
            return
        if message.from_client and self._is_stopping():
            message.drop()
            self._gate.note("request_refused", "stopping", flows.context(flow))
            _inject(flow, flows.refusal_body(flows.denial("stopping", "the message")), is_text=message.is_text)
            return
        context = _context(flow)
        if not message.from_client:
            payloads = Responses(self._gate, context, None, self._key).rewrite(message.content)
            if payloads is not None:
                message.content = payloads[0]
            return
        before = flows.state_of(flow).sent
        verdict = await self._gate.inspect(message.content, context, before=before)
        match verdict:
            case Forward():
                message.content = await self._gate.encode(verdict)
            case Pass():
                flows.state_of(flow).sent = last_words(before, message.content)
            case Answer(replies=replies):
                message.drop()
                for reply in replies:
                    _inject(flow, serialise(reply), is_text=message.is_text)
            case Reject(denial=denial):
                message.drop()
                _inject(flow, flows.refusal_body(denial), is_text=message.is_text)
            case _:
                raise TypeError(f"unknown verdict {verdict!r}")


def _context(flow: http.HTTPFlow) -> Context:
    return replace(flows.context(flow), transport="websocket", session=flow.id, target="")


def _inject(flow: http.HTTPFlow, body: bytes, *, is_text: bool) -> None:
    from mitmproxy import ctx  # noqa: PLC0415  the master exists once the daemon runs

    ctx.master.commands.call("inject.websocket", flow, True, body, is_text)
