"""Where servers of HTTP+SSE (2024-11-05) take messages whose answers travel on a GET stream."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from addons import flow_state as flows

if TYPE_CHECKING:
    from mitmproxy import http

    from proxy.core.interfaces import SharedCalls

MAX_ENDPOINTS = 1000


class LegacyEndpoints:
    """The endpoints that this worker or another one has learnt."""

    def __init__(self, shared_calls: SharedCalls | None) -> None:
        self._known: set[tuple[str, str]] = set()
        self._shared_calls = shared_calls

    def add(self, server: str, path: str) -> None:
        """Learn an endpoint that a server named on a stream; the other workers learn of it, too."""
        endpoint = server, urlsplit(path).path
        if len(self._known) < MAX_ENDPOINTS:
            self._known.add(endpoint)
        if self._shared_calls is not None:
            self._shared_calls.add_endpoint(*endpoint)

    def takes(self, flow: http.HTTPFlow) -> bool:
        """Return whether answers to this POST travel on a GET stream."""
        headers = flow.request.headers
        # Clients of the later transport send one or the other with every POST; those of the legacy one neither.
        if "mcp-session-id" in headers or flows.EVENT_STREAM in headers.get("accept", ""):
            return False
        if flows.legacy_session(flow.request.path) is not None:
            return True
        return self.is_known(flows.server_name(flow), flow.request.path)

    def is_known(self, server: str, target: str) -> bool:
        """Return whether a server takes legacy messages at the path of `target`."""
        endpoint = server, urlsplit(target).path
        return endpoint in self._known or (self._shared_calls is not None and self._shared_calls.is_endpoint(*endpoint))
