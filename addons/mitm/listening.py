"""Has mitmproxy listen on a worker's own sockets: it knows no SO_REUSEPORT, and workers share their ports.

The one method that listens is replaced, so the version it was written against is checked, and
tests/addons/mitm/test_listening.py fails when mitmproxy listens another way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from mitmproxy import version
from mitmproxy.proxy import mode_servers

from proxy.system.listen_ports import BACKLOG, listen_shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.system.listen_ports import Address

MADE_FOR: Final = "12.2.3"


def replace_listening(addresses: Sequence[Address]) -> None:
    """Make mitmproxy listen on `addresses`, which are reserved, whatever its options say. Holds for the process.

    Raises RuntimeError for a version of mitmproxy that may do it otherwise.
    """
    if version.VERSION != MADE_FOR:
        raise RuntimeError(f"this Interlock is made for mitmproxy {MADE_FOR}, not {version.VERSION}; install its lock")

    async def listen(self: mode_servers.AsyncioServerInstance[Any], _host: str, _port: int) -> list[asyncio.Server]:
        sockets = [listen_shared(address) for address in addresses]
        return [await asyncio.start_server(self.handle_stream, sock=sock, backlog=BACKLOG) for sock in sockets]

    mode_servers.AsyncioServerInstance.listen = listen  # type: ignore[assignment,method-assign]
