"""One name for each server, however it is written, and the other names that rules may know it by. Pure, no I/O.

`2130706433`, `127.1`, `0x7f.1`, `[::ffff:127.0.0.1]` and `0` all reach 127.0.0.1. Rules, pins, learned endpoints and
events go by one name, so none of these is a way around a rule.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import TYPE_CHECKING, Final

from proxy.policy.globs import is_glob, translate
from proxy.policy.hosts import Host, canonical_host, lookalikes
from proxy.policy.ip_address import classes_of, classes_of_name, parse_address
from proxy.policy.regex import compile_search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from proxy.policy.ip_address import Address

_OWN_PORTS: Final = ("80", "443")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
# An address in brackets, or a name without a colon; then perhaps a port.
_PARTS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+(?:%[^\]]*)?\]|[^:\[\]*?]+)(?::([0-9]{1,5}))?\Z")
_CACHED: Final = 4096


@functools.lru_cache(maxsize=_CACHED)
def canonical_name(host: str) -> str:
    """Return the one spelling of a host: an address in its standard form, a name in lower case and ASCII."""
    known = canonical_host(host)
    if known is None or not known.name:
        return host.strip("[]").rstrip(".").lower()
    address = parse_address(known.name)
    return known.name if address is None else _dialled(address)


def _dialled(address: Address) -> str:
    """Return the address that a kernel dials: the IPv4 address inside a mapped one, the machine itself for none."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


def server_name(host: str, port: int, own_port: int | None) -> str:
    """Return a server's name: its host, and its port where that is not `own_port`, the scheme's own."""
    name = canonical_name(host)
    return name if port == own_port else _join(name, str(port))


def compile_servers(patterns: Sequence[str] | None, *, strictly: bool) -> Callable[[str], bool]:
    """Return the test whether a server fits one of `patterns`; None fits every server.

    With `strictly`, for what permits, a server fits by the spellings of its own name; else by every name that may
    reach it, so that a restriction of `localhost` holds for `127.0.0.2`.
    """
    if patterns is None or "*" in patterns:
        return lambda _server: True
    plain = frozenset(name for p in patterns if not _is_glob(p) for name in (p, *spellings(p)))
    globs = [glob for p in patterns if _is_glob(p) for glob in dict.fromkeys((p, p.lower()))]
    search = compile_search("^(?s:" + "|".join(map(translate, globs)) + ")$") if globs else None
    names_of = spellings if strictly else aliases

    def fits(server: str) -> bool:
        names = names_of(server)
        return not plain.isdisjoint(names) or (search is not None and any(map(search, names)))

    return fits


@functools.lru_cache(maxsize=_CACHED)
def spellings(server: str) -> frozenset[str]:
    """Return the names that mean the same server; `localhost` is 127.0.0.1, and a scheme's own port may be written."""
    parts = _PARTS.match(server)
    if parts is None:
        return frozenset((server,))
    name = canonical_name(parts[1])
    names = _LOOPBACK[:2] if name in _LOOPBACK[:2] else (name,)
    return frozenset((server, *_with_ports(names, parts[2])))


@functools.lru_cache(maxsize=_CACHED)
def aliases(server: str) -> frozenset[str]:
    """Return every name that is known to reach the same server."""
    parts = _PARTS.match(server)
    if parts is None:
        return frozenset((server,))
    name = canonical_name(parts[1])
    names = {name, *map(str, _addresses_in(name))}
    if any(map(_is_loopback, names)):
        names.update(_LOOPBACK)
    return spellings(server) | frozenset(_with_ports(names, parts[2]))


def _addresses_in(name: str) -> Iterator[Address]:
    """Return the addresses that DNS services read out of a name such as 127.0.0.1.nip.io."""
    for other in lookalikes(Host(name)):
        yield from other.addresses


def _is_loopback(name: str) -> bool:
    address = parse_address(name)
    return "loopback" in (classes_of_name(name) if address is None else classes_of(address))


def _with_ports(names: Iterable[str], port: str | None) -> Iterator[str]:
    for name in names:
        if port is None or port in _OWN_PORTS:
            yield name
        for each in (port,) if port is not None else _OWN_PORTS:
            yield _join(name, each)
            if ":" in name:
                yield f"{name}:{each}"  # as policies wrote it before there were brackets


def _join(name: str, port: str) -> str:
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _is_glob(pattern: str) -> bool:
    """Return whether a pattern is a glob; the brackets of an IPv6 address make none."""
    parts = _PARTS.match(pattern)
    is_address = parts is not None and pattern.startswith("[") and parse_address(parts[1]) is not None
    return is_glob(pattern) and not is_address
