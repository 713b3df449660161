"""Starts a server once more, in the home that it has seen, and asks what tools it has.

A server that shows good tools at its first start and others later remembers that somewhere: in its home.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from proxy.probe.fifo import reading
from proxy.probe.mcp_client import McpClient, RequestRefusedError, RequestTimeoutError, ServerGoneError
from proxy.probe.sinkhole import plan_sinkhole
from proxy.sandbox.server_process import start_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.sinkhole import Sinkhole

STOP_SECONDS = 2.0


async def list_tools_again(sinkhole: Sinkhole, roots: Sequence[str], seconds: float) -> list[JsonObject]:
    """Return the tools of a second start; none where it does not answer: many servers are started once."""
    planned = plan_sinkhole(sinkhole)
    os.mkfifo(sinkhole.file("trace"), 0o600)  # it starts as it did before: a server may look whether it is traced
    with reading(sinkhole.file("notes"), _ignore), reading(sinkhole.file("trace"), _ignore):
        server = await start_server(planned)
        client = McpClient(server.read, server.write, roots)
        try:
            await client.open_session(seconds)
            return await client.list_all("tools/list", "tools", seconds)
        except (RequestRefusedError, RequestTimeoutError, ServerGoneError):
            return []
        finally:
            await client.close()
            await server.stop(STOP_SECONDS)
            await server.clean_up()


def _ignore(_: bytes) -> None:
    """Drop what the sinks and strace say: this start is not judged by its acts."""
