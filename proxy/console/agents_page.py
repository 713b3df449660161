"""Agents: who called, when last, and one agent's sessions call by call."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from proxy.console.agent_sessions import NO_NAME, agents, sessions
from proxy.console.charts import stacked_columns
from proxy.console.context import NavEntry, action, view
from proxy.console.login_page import see_other
from proxy.console.overview_page import SAMPLE, SPANS, read_span
from proxy.console.security import RefusedError
from proxy.core.approvals import Role
from proxy.core.event import Filter
from proxy.errors import ConfigError
from proxy.identity.token_file import AgentTokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from proxy.console.context import Console

DEFAULT: Final = "24h"
MAX_CALLS: Final = 200
MAX_AGENTS: Final = 200
MAX_NAME: Final = 200
_GLOB: Final = re.compile(r"([*?\[])")


def literal(name: str) -> str:
    """Return the glob that fits one name and no other: agents choose their names, stars included."""
    return _GLOB.sub(r"[\1]", name)


class AgentsPage:
    nav: NavEntry | None = NavEntry("/agents", "Agents", "n")

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        # By a query: a name may hold slashes, and whatever else an agent chose.
        return [
            view("/agents", self.list),
            view("/agents/one", self.show),
            action("/agents/halt", self.halt, Role.APPROVER),
            action("/agents/resume", self.resume, Role.APPROVER),
        ]

    async def list(self, request: Request) -> Response:
        chosen = read_span(request, DEFAULT)
        starts = SPANS[chosen].starts(time.time())
        async with self._console.trail.open() as reader:
            events = await reader.sample(starts, SAMPLE // (len(starts) - 1))
        found = agents(events, starts)
        seen = {one.name for one in found}
        values = {
            "spans": SPANS,
            "chosen": chosen,
            "span": SPANS[chosen],
            "rows": [(one, stacked_columns(one.slices)) for one in found[:MAX_AGENTS]],
            "more": max(0, len(found) - MAX_AGENTS),
            "quiet": sorted(name for name in self._known() if name not in seen)[:MAX_AGENTS],
            "sampled": any(event.weight > 1 for event in events),
        }
        return self._console.renderer.page(request, "agents.html", values)

    async def show(self, request: Request) -> Response:
        name = request.query_params.get("name", "")
        if not name or len(name) > MAX_NAME:
            raise RefusedError(404, "not_found", "There is no agent of this name.")
        async with self._console.trail.open() as reader:
            calls = await reader.calls(Filter(agent=name), MAX_CALLS)
        # A star in the name of an agent stands for nothing but itself here.
        mine = [call for call in calls if call.agent == name]
        if not mine and name not in self._known():
            raise RefusedError(404, "not_found", "This agent has made no call.")
        values = {
            "name": name,
            "sessions": sessions(mine),
            "calls": len(mine),
            "denied": sum(call.decision == "deny" for call in mine),
            "proved": any(call.authenticated for call in mine),
            "limit": MAX_CALLS,
            "has_token": name in self._known(),
            "no_name": NO_NAME,
            "halts": [halt for halt in self._console.halts.in_force() if halt["agent"] in (None, name, literal(name))],
        }
        return self._console.renderer.page(request, "agent.html", values)

    async def halt(self, request: Request, form: Mapping[str, str]) -> Response:
        name, me = form.get("name", ""), request.state.me
        if not name or len(name) > MAX_NAME:
            raise RefusedError(404, "not_found", "There is no agent of this name.")
        cut = form.get("cut") == "yes"
        await self._console.halts.halt(me.person, form.get("reason", ""), agent=literal(name), cut=cut)
        return see_other(f"/agents/one?{urlencode({'name': name})}")

    async def resume(self, request: Request, form: Mapping[str, str]) -> Response:
        me = request.state.me
        await self._console.halts.resume(me.person, form.get("reason", ""), [form.get("halt", "")])
        return see_other(f"/agents/one?{urlencode({'name': form.get('name', '')})}")

    def _known(self) -> frozenset[str]:
        """Return the agents that have a token; none where the file cannot be read, which the proxy says elsewhere."""
        try:
            return frozenset(AgentTokens(self._console.trail.state_dir).names())
        except (ConfigError, OSError):
            return frozenset()
