"""Writes the nft rules that lead all traffic to the proxy. Pure.

They serve two cases: a network namespace with nothing but loopback, in which every address is local; and the network of
a container that an agent shares with the proxy, where everything but the proxy's own user is redirected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FORWARDER_PORT = 15001
RESOLVER_PORT = 15053
# Docker's resolver inside a container forwards queries to the outside: names could carry data out.
DOCKER_RESOLVER = "127.0.0.11"


def ruleset(
    *,
    port: int = FORWARDER_PORT,
    resolver_port: int = RESOLVER_PORT,
    proxy_uid: int | None = None,
    host_ports: Iterable[int] = (),
) -> str:
    """Return rules for `nft -f -`: TCP goes to `port`, DNS to `resolver_port`, everything else is rejected.

    Traffic of the user `proxy_uid` is accepted; connections to `host_ports` of
    loopback go to `port` too. Applied again, the rules replace themselves in one step.
    """
    theirs = ", ".join(str(number) for number in sorted(set(host_ports)))
    own = () if proxy_uid is None else (f"meta skuid {proxy_uid} accept",)
    redirect = (
        "type nat hook output priority -101; policy accept;",  # before Docker's own, which are at -100
        *own,
        f"meta l4proto {{ tcp, udp }} th dport 53 redirect to :{resolver_port}",
        *((f"tcp dport {{ {theirs} }} redirect to :{port}",) if theirs else ()),
        "ip daddr 127.0.0.0/8 accept",
        "ip6 daddr ::1 accept",
        f"meta l4proto tcp redirect to :{port}",
    )
    # In a namespace of our own, replies go to the made-up address that was dialled, so they must be accepted by
    # connection. In a container that would let connections from before the rules outlive them.
    answers = ("ct state established,related accept",) if proxy_uid is None else (f"ip daddr {DOCKER_RESOLVER} drop",)
    guard = (
        "type filter hook output priority 0; policy drop;",
        *own,
        *answers,
        "ip daddr 127.0.0.0/8 accept",
        "ip6 daddr ::1 accept",
        "reject with icmpx admin-prohibited",  # so that QUIC gives up at once
    )
    chains = _block("chain lead", redirect), _block("chain guard", guard)
    table = _block("table inet interlock", "\n".join(chains).splitlines())
    return f"table inet interlock\ndelete table inet interlock\n{table}\n"


def _block(head: str, lines: tuple[str, ...] | list[str]) -> str:
    return "\n".join([f"{head} {{", *(f"  {line}" for line in lines), "}"])
