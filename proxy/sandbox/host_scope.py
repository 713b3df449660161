"""The hosts that a call's arguments name, for tools that are bound to them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import ada_url

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TEXTS: Final = 10_000
MAX_DEPTH: Final = 100
# Inside of longer text a host is named by its URL; a text that is nothing but a host names it, too.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>`\\^{}|]+")
_HOST: Final = re.compile(
    r"(?:[\w-]+(?:\.[\w-]+)+\.?|localhost|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII | re.IGNORECASE
)
_PORTS: Final = {"http:": (80, 443), "ws:": (80, 443), "https:": (443,), "wss:": (443,), "ftp:": (21,), "ssh:": (22,)}
_WEB: Final = (80, 443)


class NamedHost(NamedTuple):
    """A host, in the spelling of the URL standard, and a port of it."""

    host: str
    port: int


def named_hosts(arguments: object) -> frozenset[NamedHost]:
    """Return the hosts and ports that arguments name. A pattern names nothing, nor does what cannot be read."""
    return frozenset(found for text in _texts(arguments) for found in _named(text))


def names(hosts: frozenset[NamedHost], host: str, port: int) -> bool:
    """Return whether a host and port were named; a name stands for itself alone, not for others below it."""
    return NamedHost(host.lower().rstrip(".").strip("[]"), port) in hosts


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the texts in arguments, keys included. What lies too deep names nothing."""
    if isinstance(value, str):
        yield value
    elif depth < MAX_DEPTH and isinstance(value, dict | list):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        for part in parts[:MAX_TEXTS]:
            yield from _texts(part, depth + 1)


def _named(text: str) -> Iterator[NamedHost]:
    for found in _URL.finditer(text):
        yield from _parsed(found[0])
    stripped = text.strip()
    if _HOST.fullmatch(stripped):
        yield from _parsed(f"http://{stripped}")


def _parsed(url: str) -> Iterator[NamedHost]:
    try:
        parts = ada_url.URL(url)
    except ValueError:
        return
    host = parts.hostname.lower().rstrip(".").strip("[]")
    if not host or "*" in host:
        return
    # The parser leaves out a port that its scheme implies.
    ports = (int(parts.port),) if parts.port else _PORTS.get(parts.protocol, _WEB)
    yield from (NamedHost(host, port) for port in ports)
