"""Notifies clients that a server's tools changed, on the event streams they hold open."""

from __future__ import annotations

import structlog
from mitmproxy import ctx, http

from addons.flow_state import principal, state_of
from addons.limits import EventPushed

log = structlog.get_logger("interlock.tools_changed")


class Announcer:
    """Knows the open event streams. Stands after McpGate, which decides what is one."""

    def __init__(self) -> None:
        self._open: dict[str, http.HTTPFlow] = {}
        self._in_lane: dict[str, str] = {}  # streams that pass no layers: call to agent

    @property
    def count(self) -> int:
        """How many streams are open."""
        return len(self._open) + len(self._in_lane)

    def streams_of(self, agent: str) -> int:
        """How many streams of one agent are open."""
        in_lane = sum(each == agent for each in self._in_lane.values())
        return in_lane + sum(principal(flow).agent == agent for flow in self._open.values())

    def opened(self, call_id: str, agent: str) -> None:
        """Count a stream that passes no layers. It carries the answer to one call, and no news of tools."""
        self._in_lane[call_id] = agent

    def closed(self, call_id: str) -> None:
        """Forget such a stream."""
        self._in_lane.pop(call_id, None)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Remember a stream that opens."""
        if state_of(flow).rewriter is not None:
            self._open[flow.id] = flow

    def response(self, flow: http.HTTPFlow) -> None:
        """Forget a stream that ended."""
        self._open.pop(flow.id, None)

    def error(self, flow: http.HTTPFlow) -> None:
        """Forget a stream that broke off."""
        self._open.pop(flow.id, None)

    def tools_changed(self, server: str | None = None) -> None:
        """Notify the clients with an open stream that tools changed: those of one server, or of all."""
        for flow in list(self._open.values()):
            stream = state_of(flow).rewriter
            event = stream.tools_changed(server) if stream is not None else None
            if event is not None:
                self._push(flow, event)

    def _push(self, flow: http.HTTPFlow, event: bytes) -> None:
        try:
            ctx.master.addons.get("proxyserver").inject_event(EventPushed(flow, event))
        except ValueError:
            log.debug("a stream is gone already", flow=flow.id)
            self._open.pop(flow.id, None)
