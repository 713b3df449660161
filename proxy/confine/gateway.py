"""Serves the sockets that all traffic of a confined agent is redirected to."""

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

# Descriptors for DNS, and for connections above the limit, which are accepted before they are closed.
SPARE = 512


async def start(
    proxy: tuple[str, int],
    credentials: tuple[str, str] | None,
    sockets: ListeningSockets,
    say: Callable[[str], None],
    host_ports: Iterable[int] = (),
) -> list[asyncio.Server]:
    """Begin to forward connections and to answer DNS queries; return the servers, which the caller must hold."""
    allowed = allow_descriptors(2 * MAX_CONNECTIONS + SPARE)
    # Bounded by our own limit: a forwarder without descriptors could not even refuse.
    most = max(1, min(MAX_CONNECTIONS, (allowed - SPARE) // 2))
    fakes = new_addresses()
    for each in (*sockets.forwarder, *sockets.datagrams, *sockets.streams):
        each.setblocking(False)
    servers = await Forwarder(proxy, fakes, credentials, say, host_ports, most).serve(sockets.forwarder)
    return servers + await serve_names(fakes, sockets.datagrams, sockets.streams)


def allow_descriptors(count: int) -> int:
    """Raise this process's limit of open files to `count`, as far as the system allows; return the limit."""
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
