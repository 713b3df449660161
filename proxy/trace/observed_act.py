"""Turns observations into acts that rules can judge. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.acts import Act

if TYPE_CHECKING:
    from proxy.trace.capability import Observation

# Marks a word of a command line that strace printed the beginning of, or the end of a list that it cut off.
CUT = "…"


def as_act(seen: Observation) -> Act:
    """Return what was observed in the words of a policy."""
    host, port = _split_peer(seen.peer) if seen.peer else (None, None)
    partial = any(word.endswith(CUT) for word in seen.argv)
    # Of a lookup, the name counts and not the resolver.
    host, port = (seen.name, None) if seen.name is not None else (host, port)
    return Act(str(seen.capability), seen.action, seen.path, host, port, seen.argv, seen.error, partial)


def _split_peer(peer: str) -> tuple[str, int | None]:
    """Split `host:port`; what has no port is a host."""
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isdecimal():
        return peer, None
    return host.strip("[]"), int(port)
