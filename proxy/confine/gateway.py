"""Serves the sockets that all traffic of a confinement is led to."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from typing import TYPE_CHECKING

from proxy.confine.forwarder import MAX_CONNECTIONS, Forwarder
from proxy.confine.resolver import new_addresses, serve_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxy.confine.namespace_setup import ListeningSockets

SPARE = 512
"""Files for all but connections to the proxy: questions for names, and what is accepted in one go and closed."""


async def start(
    proxy: tuple[str, int],
    credentials: tuple[str, str] | None,
    sockets: ListeningSockets,
    say: Callable[[str], None],
    host_ports: Iterable[int] = (),
) -> list[asyncio.Server]:
    """Forward connections and answer names, from now on; return what to keep for that."""
    allowed = allow_descriptors(2 * MAX_CONNECTIONS + SPARE)
    most = max(1, min(MAX_CONNECTIONS, (allowed - SPARE) // 2))
    fakes = new_addresses()
    for each in (*sockets.forwarder, *sockets.datagrams, *sockets.streams):
        each.setblocking(False)
    servers = await Forwarder(proxy, fakes, credentials, say, host_ports, most).serve(sockets.forwarder)
    return servers + await serve_names(fakes, sockets.datagrams, sockets.streams)


def allow_descriptors(count: int) -> int:
    """Let this process open so many files, as far as the system lets it; return how many. A connection takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def serve_gateway(
    proxy: tuple[str, int],
    credentials: tuple[str, str] | None,
    sockets: ListeningSockets,
    say: Callable[[str], None],
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGTERM or SIGINT."""
    servers = await start(proxy, credentials, sockets, say)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    on_ready()
    await stopped.wait()
    for server in servers:
        with contextlib.suppress(OSError):
            server.close()
