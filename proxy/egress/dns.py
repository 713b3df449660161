"""Reads DNS queries, writes answers to them, and maps names to made-up addresses and back. Pure.

The one reader of DNS messages: for the resolvers of `confine` and of a probe, which know every
name, and for queries that `trace` finds in strace's output.
"""

from __future__ import annotations

import ipaddress
import struct
import threading
from typing import Final, NamedTuple

A, AAAA = 1, 28
INTERNET = 1
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
PORTS: Final = frozenset({53, 5353, 5355})
HEADER: Final = 12
MAX_LABEL: Final = 63
MAX_QUESTIONS: Final = 16
SECONDS_TO_LIVE: Final = 60
_POINTER_TO_QUESTION: Final = 0xC00C

type Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Question(NamedTuple):
    """The name and record type that a query asks for; `end` is where its question ends."""

    name: str
    kind: int
    end: int


def read_question(query: bytes) -> Question:
    """Read the one question of a query. Raises ValueError where there is no complete one."""
    name, at, complete = _read_name(query, HEADER)
    if name is None or not complete or len(query) < at + 2:
        raise ValueError("no complete question")
    return Question(name, int.from_bytes(query[at : at + 2]), at + 4)


def query_names(message: bytes, *, framed: bool = False) -> list[str]:
    """Return the names that a query asks for, the last one maybe incomplete; none where it is no query.

    Never raises. `framed`: preceded by its length, as over TCP.
    """
    message = message[2:] if framed else message
    if len(message) < HEADER or message[2] & 0x80:
        return []
    names: list[str] = []
    at = HEADER
    for _ in range(min(int.from_bytes(message[4:6]), MAX_QUESTIONS)):
        name, at, _complete = _read_name(message, at)
        if name is None:
            break
        # What strace cut off, or a server sent malformed, has left the machine all the same: it is reported.
        names.append(name)
        at += 4
    return list(dict.fromkeys(names))


def _read_name(message: bytes, at: int) -> tuple[str | None, int, bool]:
    """Return the name at `at` as far as it goes, where it ends, and whether it is complete."""
    labels: list[str] = []
    while at < len(message):
        size = message[at]
        if size == 0:
            return ".".join(labels) or ".", at + 1, True
        # No honest query has a compression pointer in its question, and following one can loop.
        if size > MAX_LABEL:
            return None, at, False
        labels.append(message[at + 1 : at + 1 + size].decode("ascii", "backslashreplace"))
        at += 1 + size
    return ".".join(labels) or None, at, False


def is_query(message: bytes) -> bool:
    """Return whether a message is an ordinary query with one question."""
    return len(message) >= HEADER and message[2] & 0xF8 == 0 and message[4:6] == b"\0\1"


def make_answer(query: bytes, end: int, address: str | None = None, code: int = NO_ERROR) -> bytes:
    """Return an answer with one address, of either version, or with no record of the requested type."""
    flags = 0x8180 | (query[2] & 0x01) << 8 | code
    head = query[:2] + struct.pack("!HHHHH", flags, 1, 1 if address else 0, 0, 0) + query[HEADER:end]
    if address is None:
        return head
    packed = ipaddress.ip_address(address).packed
    kind = A if len(packed) == 4 else AAAA
    return head + struct.pack("!HHHLH", _POINTER_TO_QUESTION, kind, INTERNET, SECONDS_TO_LIVE, len(packed)) + packed


class FakeAddresses:
    """Assigns each name an address of its own in every one of `networks`, and finds the name by any of them."""

    def __init__(self, *networks: Network) -> None:
        self._networks = networks
        self._size = min(network.num_addresses for network in networks) - 2
        self._lock = threading.Lock()  # a probe's resolver serves each client in a thread
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def assign(self, name: str) -> tuple[str, ...] | None:
        """Return the addresses of `name`, one of each network; None where no more are left."""
        with self._lock:
            number = self._numbers.get(name)
            if number is None:
                # Never reused: a connection to a recycled address would be attributed to the wrong name.
                if len(self._names) >= self._size:
                    return None
                number = self._numbers[name] = len(self._names)
                self._names.append(name)
        return tuple(str(network[number + 1]) for network in self._networks)

    def name(self, address: str) -> str | None:
        wanted = ipaddress.ip_address(address)
        for network in self._networks:
            if wanted in network:
                number = int(wanted) - int(network.network_address) - 1
                return self._names[number] if 0 <= number < len(self._names) else None
        return None

    def covers(self, address: str) -> bool:
        return any(ipaddress.ip_address(address) in network for network in self._networks)
