"""Finds how a sandboxed server reaches hosts: through the proxy that runs, and no other way."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from proxy.agent.env import ProxyEndpoint, proxy_url, reached, without_proxy
from proxy.config import split_address
from proxy.confine.firewall import FORWARDER_PORT, RESOLVER_PORT, ruleset
from proxy.confine.namespace_setup import own_files
from proxy.errors import ConfigError
from proxy.identity.ca import Authority
from proxy.sandbox.plan import WayOut
from proxy.system import run_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.config import Settings

_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")


def way_out(hosts: tuple[str, ...] | None, settings: Settings) -> WayOut:
    """Return a server's way to its hosts; to any where they are None. Raises ConfigError where no proxy runs."""
    running = run_file.read(settings.state_dir)
    if running is None or running.mode != "regular":
        raise ConfigError(
            f"the sandbox lets the server reach hosts, through the proxy, and none runs on {settings.state_dir}; "
            "start one with `interlock up`, or write network: none"
        )
    authority = Authority(settings.state_dir)
    ca, bundle = (authority.folder / name for name in ("ca.pem", "bundle.pem"))
    endpoint = ProxyEndpoint(proxy_url(running.listen), str(ca), str(bundle), "")
    given = {str(path.resolve()): path.read_text() for path in (ca, bundle)}
    given |= own_files(socket.gethostname())
    every = hosts is None or any(entry.endswith(":*") for entry in hosts)
    firewall = ruleset(host_ports=local_ports(hosts)) if every else None
    ports = (FORWARDER_PORT,) if every else ports_of(hosts or ())
    return WayOut(
        ports,
        RESOLVER_PORT if every else 53,
        firewall,
        split_address(reached(running.listen)),
        given,
        without_proxy(endpoint),
    )


def ports_of(hosts: Sequence[str]) -> tuple[int, ...]:
    """Return the ports of a profile's hosts; an entry without one stands for 80 and 443."""
    found: set[int] = set()
    for entry in hosts:
        _, colon, port = entry.rpartition(":")
        found |= {int(port)} if colon and port.isdigit() and not entry.endswith("]") else {80, 443}
    return tuple(sorted(found))


def local_ports(hosts: Sequence[str] | None) -> tuple[int, ...]:
    """Return the ports of this machine's own loopback that a profile names."""
    named = [entry for entry in hosts or () if _host_of(entry) in _LOCAL]
    return tuple(port for entry in named for port in ports_of([entry]))


def _host_of(entry: str) -> str:
    host, colon, _ = entry.rpartition(":")
    return (host if colon and not entry.endswith("]") else entry).lower()
