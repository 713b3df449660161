"""Outgoing connections: mitmproxy can dial only hosts whose addresses were judged, and only at those addresses.

Replaces `asyncio.open_connection` in mitmproxy's server for safety. A name that was judged and then resolved again
for the connection could lead elsewhere the second time (DNS rebinding). And a failed hook does not stop mitmproxy:
without a judged host there is no connection, whatever the hooks did. Unnecessary once mitmproxy lets a hook set the
addresses to dial, and dials nothing else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence


class PinnedHost(str):
    """A host with the addresses it may be dialled at; equal to the bare host, so that connections are reused."""

    __slots__ = ("addresses",)
    addresses: tuple[str, ...]

    def __new__(cls, host: str, addresses: Sequence[str]) -> Self:
        made = super().__new__(cls, host)
        made.addresses = tuple(addresses)
        return made


async def dial(host: str, port: int, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first judged address of `host` that accepts. Raises OSError where none does."""
    if not isinstance(host, PinnedHost):
        raise ConnectionRefusedError("Interlock: the destination was not judged")
    failure = OSError(f"{host} has no address")
    for address in host.addresses:
        try:
            return await asyncio.open_connection(address, port, **options)
        except OSError as error:
            failure = error
    raise failure


class DiallingAsyncio:
    """Replaces the module `asyncio` in mitmproxy's server."""

    open_connection = staticmethod(dial)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)
