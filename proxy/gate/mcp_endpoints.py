"""Where servers speak MCP. There, a request is one strict message or none at all; whatever else comes is refused.

An endpoint is known by a setting, by the request's own `Mcp-*` headers, or by experience: a server answered a message
there with a result. An agent cannot teach a false one without the server's help. What it sends is no evidence; an error
is none either, since every JSON-RPC service has those. So all agents share what is learned. A server that lies harms
only itself, and an agent that fills its share of the memory takes nothing from what others have taught.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import unquote

import structlog

from proxy.errors import SharedCallsUnavailableError
from proxy.wire.mcp import SURELY_MCP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.interfaces import SharedCalls
    from proxy.core.model import Context, InFlightCall, JsonObject
    from proxy.wire.mcp import RequestHead

log = structlog.get_logger("interlock.gate")

MAX_ENDPOINTS = 5_000
MAX_OF_AGENT = 500
_PLAIN_PATH = re.compile(r"(?:/[a-z0-9_-]+)+", re.ASCII)


class McpEndpoints:
    """Tells endpoints that speak MCP from others; `named` are globs of `server/path`. Threads may use it."""

    def __init__(self, named: Sequence[str] = (), shared_calls: SharedCalls | None = None) -> None:
        self._named = tuple(glob.casefold() for glob in named)
        self._shared_calls = shared_calls
        self._known: set[tuple[str, str]] = set()
        self._taught: Counter[str] = Counter()

    def takes_only_mcp(self, context: Context, head: RequestHead) -> bool:
        """Return whether nothing but MCP may go there. Raises SharedCallsUnavailableError where that is not known."""
        if context.transport == "stdio":
            return False  # its session refuses what is not MCP by itself
        if head.mcp:
            return True
        server, place = key = _place(context)
        if key in self._known:
            return True
        if any(fnmatchcase(f"{server}{place}", glob) for glob in self._named):
            return True
        return self._shared_calls is not None and self._shared_calls.is_mcp_endpoint(server, place)

    def learn(self, in_flight: InFlightCall, response: JsonObject) -> None:
        """Take a response as evidence, where it is one."""
        context, result = in_flight.context, response.get("result")
        key = _place(context)
        if key in self._known or context.transport == "stdio" or not isinstance(result, dict):
            return
        method = in_flight.message.method
        if method not in SURELY_MCP and not (method == "initialize" and "protocolVersion" in result):
            return
        agent = context.principal.agent
        if self._taught[agent] < MAX_OF_AGENT and len(self._known) < MAX_ENDPOINTS:
            self._taught[agent] += 1
            self._known.add(key)
            # Of a WebSocket the connection is known, which no other worker has.
            if self._shared_calls is not None and context.transport != "websocket":
                self._share(*key, agent)

    def _share(self, server: str, place: str, agent: str) -> None:
        assert self._shared_calls is not None
        try:
            self._shared_calls.add_mcp_endpoint(server, place, agent)
        except SharedCallsUnavailableError as error:
            # The answer itself need not suffer: workers that cannot look the endpoint up refuse what is not MCP.
            log.warning("other workers do not know of an endpoint", server=server, path=place, error=str(error))


def _place(context: Context) -> tuple[str, str]:
    """Return the server, and the path as the most lenient router compares it; of a WebSocket, the connection."""
    if context.transport == "websocket":
        return context.server, f" {context.session}"
    return context.server, _folded(context.target)


@functools.lru_cache(maxsize=1024)
def _folded(target: str) -> str:
    path = target.partition("?")[0]
    if _PLAIN_PATH.fullmatch(path):
        return path
    path = unquote(unquote(path)).partition("#")[0].partition("\0")[0].replace("\\", "/")
    path = "/".join(segment.partition(";")[0] for segment in path.split("/"))
    return posixpath.normpath(f"/{path.strip('/ ')}").casefold()
