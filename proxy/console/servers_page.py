"""Servers: their tools, what changed of them and who approves that, and what a probe found."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from proxy.console.context import NavEntry, action, view
from proxy.console.login_page import see_other
from proxy.console.overview_page import SAMPLE, SPANS
from proxy.console.security import RefusedError
from proxy.console.server_view import ProbeView, probes, servers, tools_of
from proxy.core.approvals import Role
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import ConfigError, PinsUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from proxy.audit.call_event import CallEvent
    from proxy.console.context import Console
    from proxy.gate.tool_pins import ServerPins

SPAN: Final = SPANS["24h"]
AMONG: Final = 5000  # events outside calls among which probes are looked for
MAX_SERVERS: Final = 300


class ServersPage:
    nav: NavEntry | None = NavEntry("/servers", "Servers", "s")

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pins = console.pins

    def routes(self) -> list[Route]:
        return [
            view("/servers", self.list),
            view("/servers/one", self.show),
            action("/servers/approve", self.approve, Role.APPROVER),
        ]

    async def list(self, request: Request) -> Response:
        pins = await asyncio.to_thread(self._read_all)
        events, found = await self._read_trail()
        rows = servers(pins, events, found)
        values = {"rows": rows[:MAX_SERVERS], "more": max(0, len(rows) - MAX_SERVERS)}
        return self._console.renderer.page(request, "servers.html", values)

    async def show(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        pins = await asyncio.to_thread(self._read_all)
        events, found = await self._read_trail()
        row = next((one for one in servers(pins, events, found) if one.name == name), None)
        if row is None:
            raise RefusedError(404, "not_found", "There is no server of this name.")
        values: dict[str, Any] = {
            "row": row,
            "tools": tools_of(pins[name]) if name in pins else [],
            "approved": request.query_params.get("approved", ""),
        }
        return self._console.renderer.page(request, "server.html", values)

    async def approve(self, request: Request, form: Mapping[str, str]) -> Response:
        server, tool, digest = (form.get(name, "") for name in ("server", "tool", "digest"))
        # The whole digest of what was on the page: a tool that changed since then must be looked at again.
        if len(digest) != 64:
            raise RefusedError(400, "bad_form", "The form does not say which definition is approved.")
        detail = {"operator": request.state.me.operator, "via": "console", "digest": digest}
        event = AuditEvent(
            event_id=new_id(), kind="tool_approved", time=time.time(), server=server, tool=tool, detail=detail
        )
        try:
            await asyncio.to_thread(self._check, server, tool, digest)
            # Recorded first: no tool is approved without a record of who did.
            await self._console.sink.record(event)
            await asyncio.to_thread(self._pins.approve, server, tool, digest, time.time())
        except ConfigError:
            message = "The tool is not what this page showed. Look at it again."
            raise RefusedError(409, "tool_changed", message) from None
        except PinsUnavailableError as error:
            raise RefusedError(503, "pins_unavailable", f"The pins cannot be used: {error}") from None
        return see_other("/servers/one?" + urlencode({"name": server, "approved": tool}))

    def _check(self, server: str, tool: str, digest: str) -> None:
        """Raise ConfigError unless a server's tool has this digest, so that only what will be done is recorded."""
        known = self._pins.read(server)
        if known is None or tool not in known.tools or known.tools[tool].seen.digest != digest:
            raise ConfigError("another tool")

    def _read_all(self) -> dict[str, ServerPins]:
        try:
            found = {name: self._pins.read(name) for name in self._pins.servers()}
        except PinsUnavailableError as error:
            raise RefusedError(503, "pins_unavailable", f"The pins cannot be read: {error}") from None
        return {name: pins for name, pins in found.items() if pins is not None}

    async def _read_trail(self) -> tuple[Sequence[CallEvent], dict[str, ProbeView]]:
        starts = SPAN.starts(time.time())
        async with self._console.trail.open() as reader:
            events = await reader.sample(starts, SAMPLE // (len(starts) - 1))
            return events, probes(await reader.probes(AMONG))
