"""How long each MCP server took, in memory that the supervisor shares with its workers.

Which servers there are is not known before the fork, and an agent can name any host. So each worker has a fixed number
of slots, each with a name and its numbers: the first servers that answered have one of their own, all others share one.
"""

from __future__ import annotations

import bisect
import mmap
import struct
from typing import Final

SLOTS: Final = 32  # the last one is shared by all servers past the others
NAME_BYTES: Final = 120
BOUNDS: Final = (0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
OTHER: Final = "other"
_NUMBERS: Final = len(BOUNDS) + 2  # the buckets, the overflow and the sum
_SLOT: Final = NAME_BYTES + 8 + 8 * _NUMBERS


class ServerLatencies:
    """The times of all workers. Create it before the fork; each worker then takes its `row`."""

    def __init__(self, workers: int) -> None:
        self._memory = mmap.mmap(-1, workers * SLOTS * _SLOT)
        self._workers = workers

    def row(self, worker: int) -> ServerTimes:
        """Return the times of a worker; workers are numbered from 1."""
        return ServerTimes(self._memory, (worker - 1) * SLOTS * _SLOT)

    def sums(self) -> dict[str, list[float]]:
        """Return the numbers by server, summed over all workers: buckets, overflow, sum. At most SLOTS a worker."""
        found: dict[str, list[float]] = {}
        for number in range(self._workers * SLOTS):
            name = _name(self._memory, number * _SLOT)
            if name is not None:
                numbers = struct.unpack_from(f"={_NUMBERS}d", self._memory, number * _SLOT + NAME_BYTES + 8)
                found[name] = [a + b for a, b in zip(found.get(name, [0.0] * _NUMBERS), numbers, strict=True)]
        return found


class ServerTimes:
    """The times of one worker. For one thread at a time."""

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._memory = memory
        self._start = start
        self._slots: dict[str, int] | None = None

    def time(self, server: str, seconds: float) -> None:
        slot = self._slot(server)
        at = slot + NAME_BYTES + 8
        for number, more in ((bisect.bisect_left(BOUNDS, seconds), 1.0), (_NUMBERS - 1, seconds)):
            (before,) = struct.unpack_from("=d", self._memory, at + 8 * number)
            struct.pack_into("=d", self._memory, at + 8 * number, before + more)

    def _slot(self, server: str) -> int:
        if self._slots is None:  # a worker that replaces another goes on with its slots
            offsets = [self._start + number * _SLOT for number in range(SLOTS)]
            self._slots = {name: at for at in offsets if (name := _name(self._memory, at)) is not None}
        if (known := self._slots.get(server)) is not None:
            return known
        last = len(self._slots) >= SLOTS - 1
        name = OTHER if last else server
        if name not in self._slots:
            at = self._start + (SLOTS - 1 if last else len(self._slots)) * _SLOT
            data = name.encode("utf-8", "replace")[:NAME_BYTES]
            self._memory[at + 8 : at + 8 + len(data)] = data
            struct.pack_into("=q", self._memory, at, len(data))  # the name counts once its length is there
            self._slots[name] = at
        return self._slots[name]


def _name(memory: mmap.mmap, at: int) -> str | None:
    (size,) = struct.unpack_from("=q", memory, at)
    return memory[at + 8 : at + 8 + size].decode("utf-8", "replace") if size else None
