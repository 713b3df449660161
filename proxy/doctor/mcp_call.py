"""Proves the way through: a call to a small MCP server by the proxy, decided by its policy and in the audit trail."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from typing import TYPE_CHECKING, Any

from proxy.audit.reader import open_audit
from proxy.core.event import CallRecord, Filter
from proxy.doctor.findings import CheckResult, fail, ok
from proxy.doctor.mcp_server import TOOL, DoctorServer
from proxy.errors import PinsUnavailableError
from proxy.fleet.open_state import open_pins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.config import Settings

TRAIL_SECONDS = 5.0
SLACK_SECONDS = 1.0

# Calls a tool of the server with this URL through the proxy; returns whether Interlock refused it.
type CallTool = Callable[[str, str, dict[str, Any]], bool]


def way_through(settings: Settings, agent: str, call: CallTool) -> Iterator[CheckResult]:
    """Call a server of our own by `call`, and compare what the client, the server and the audit trail say."""
    mark, began = secrets.token_hex(4), time.time()
    with DoctorServer() as server:
        try:
            refused = call(server.url, TOOL, {"mark": mark})
        finally:
            _forget(settings, server.address)
        arrived = server.called_with.count(mark)
    record = asyncio.run(_record(settings, agent, began - SLACK_SECONDS, mark))
    yield judge(record, arrived, refused=refused)


def judge(record: CallRecord | None, arrived: int, *, refused: bool) -> CheckResult:
    """Say what the three sides show together."""
    if record is None:
        said = f"a call {'reached' if arrived else 'did not reach'} its server, and the audit trail has no record of it"
        return fail("mcp call", said, "check that database_url is the running proxy's, then `interlock status`")
    decided = f"{record.decision} by {record.rule}" if record.rule else f"{record.decision} ({record.reason})"
    if (record.decision == "allow") != (arrived == 1) or refused != (record.decision != "allow"):
        ended = "refused" if refused else "answered"
        said = f"a call was decided: {decided}; it reached its server {arrived} times, and was {ended}"
        return fail("mcp call", said, "report this bug")
    how = "reached its server" if arrived else "did not reach its server"
    return ok("mcp call", f"a call through the proxy was decided: {decided}; recorded as {record.call_id}; it {how}")


def _forget(settings: Settings, server: str) -> None:
    # Interlock pins what a server says of itself. Ours has another port, and so another name, each time.
    pins = open_pins(settings)
    if pins.read(server) is not None:
        with contextlib.suppress(PinsUnavailableError):  # in a fleet, a proxy's login may not
            pins.forget(server)


async def _record(settings: Settings, agent: str, since: float, mark: str) -> CallRecord | None:
    """Return the record of the call with this mark."""
    async with open_audit(settings.postgres, settings.state_dir, store_timeout=TRAIL_SECONDS) as audit:
        calls = await audit.calls(Filter(since=since, agent=agent, tool=TOOL), limit=100)
        return next((call for call in calls if mark in str(call.arguments)), None)
