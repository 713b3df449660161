"""Questions of the domain name system and answers to them; and names that stand for addresses of our own. Pure.

For resolvers that know every name and ask nobody: `trace/sinks.py` and `confine/resolver.py`.
"""

from __future__ import annotations

import ipaddress
import struct
import threading
from typing import Final, NamedTuple

A, AAAA = 1, 28
INTERNET = 1
NO_ERROR, FORMAT_ERROR, SERVER_FAILURE, NO_SUCH_NAME, NOT_IMPLEMENTED = 0, 1, 2, 3, 4
HEADER: Final = 12
MAX_LABEL: Final = 63
SECONDS_TO_LIVE: Final = 60
_POINTER_TO_QUESTION: Final = 0xC00C

type Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Question(NamedTuple):
    """What a query asks for; `end` is where its question ends."""

    name: str
    kind: int
    end: int


def read_question(query: bytes) -> Question:
    """Read the one question of a query. Raises ValueError where it is none."""
    labels, at = [], HEADER
    try:
        while length := query[at]:
            if length > MAX_LABEL:
                raise ValueError("a pointer in a question")
            label = query[at + 1 : at + 1 + length]
            if len(label) < length:
                raise ValueError("half a label")
            labels.append(label.decode("latin-1"))
            at += 1 + length
        (kind,) = struct.unpack_from("!H", query, at + 1)
    except (IndexError, struct.error) as error:
        raise ValueError("half a question") from error
    return Question(".".join(labels), kind, at + 5)


def is_query(message: bytes) -> bool:
    """Return whether a message is an ordinary query with one question."""
    return len(message) >= HEADER and message[2] & 0xF8 == 0 and message[4:6] == b"\0\1"


def make_answer(query: bytes, end: int, address: str | None = None, code: int = NO_ERROR) -> bytes:
    """Answer a query with one address, of whichever version, or with nothing of the type asked for."""
    flags = 0x8180 | (query[2] & 0x01) << 8 | code
    head = query[:2] + struct.pack("!HHHHH", flags, 1, 1 if address else 0, 0, 0) + query[HEADER:end]
    if address is None:
        return head
    packed = ipaddress.ip_address(address).packed
    kind = A if len(packed) == 4 else AAAA
    return head + struct.pack("!HHHLH", _POINTER_TO_QUESTION, kind, INTERNET, SECONDS_TO_LIVE, len(packed)) + packed


class NameBook:
    """Gives each name an address of its own in every one of its networks, and knows it again by any of them."""

    def __init__(self, *networks: Network) -> None:
        self._networks = networks
        self._size = min(network.num_addresses for network in networks) - 2
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def addresses(self, name: str) -> tuple[str, ...] | None:
        """Return the addresses that stand for `name`, one of each network; None where there are no more."""
        with self._lock:
            number = self._numbers.get(name)
            if number is None:
                if len(self._names) >= self._size:
                    return None
                number = self._numbers[name] = len(self._names)
                self._names.append(name)
        return tuple(str(network[number + 1]) for network in self._networks)

    def name(self, address: str) -> str | None:
        """Return the name that `address` stands for, if it stands for one."""
        asked = ipaddress.ip_address(address)
        for network in self._networks:
            if asked in network:
                number = int(asked) - int(network.network_address) - 1
                return self._names[number] if 0 <= number < len(self._names) else None
        return None

    def covers(self, address: str) -> bool:
        """Return whether `address` is one that could stand for a name."""
        return any(ipaddress.ip_address(address) in network for network in self._networks)
