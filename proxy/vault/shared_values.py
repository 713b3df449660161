"""Values that one worker has given out, for the others: any of them may be sent one back.

They stand in memory that the workers of one proxy share, and nowhere else. Each worker writes to a part of its own.
"""

from __future__ import annotations

import mmap
import struct
from collections import deque
from typing import TYPE_CHECKING, Final

from proxy.core.vault import Credential, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.vault import Vault

PART: Final = 1 << 20
"""Bytes for what one worker tells; when it is full, the oldest gives way."""
KEPT: Final = 1024
_COUNT: Final = struct.Struct("=Q")
_PART: Final = struct.Struct("=QQ")  # how often it was begun anew, and the bytes used
_ENTRY: Final = struct.Struct("=HHI")  # bytes of the name, the placeholder and the value
_FIRST: Final = _COUNT.size


class SharedValues:
    """The memory. Make it before the fork."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._memory = mmap.mmap(-1, _FIRST + workers * PART)

    def count(self) -> int:
        """Return what changes with every value that is told."""
        return int(_COUNT.unpack_from(self._memory, 0)[0])

    def tell(self, worker: int, credential: Credential, secret: Secret) -> None:
        """Tell the others of a value; `worker` counts from 1."""
        name, placeholder, value = credential.name.encode(), credential.placeholder.encode(), secret.reveal()
        entry = _ENTRY.pack(len(name), len(placeholder), len(value)) + name + placeholder + value
        start = self._start(worker)
        begun, used = _PART.unpack_from(self._memory, start)
        if _PART.size + used + len(entry) > PART:
            begun, used = begun + 1, 0
            _PART.pack_into(self._memory, start, begun, used)
        at = start + _PART.size + used
        self._memory[at : at + len(entry)] = entry
        _PART.pack_into(self._memory, start, begun, used + len(entry))
        _COUNT.pack_into(self._memory, 0, self.count() + 1)

    def told(self) -> list[tuple[Credential, Secret]]:
        """Return what every worker has told."""
        return [entry for worker in range(1, self.workers + 1) for entry in self._read(worker)]

    def _read(self, worker: int) -> Iterator[tuple[Credential, Secret]]:
        start = self._start(worker)
        while True:
            head = _PART.unpack_from(self._memory, start)
            data = self._memory[start + _PART.size : start + _PART.size + head[1]]
            # A part that was begun anew meanwhile may be half of one and half of the other.
            if _PART.unpack_from(self._memory, start)[0] == head[0]:
                yield from _entries(data)
                return

    def _start(self, worker: int) -> int:
        return _FIRST + (worker - 1) % self.workers * PART


def _entries(data: bytes) -> Iterator[tuple[Credential, Secret]]:
    at = 0
    while at < len(data):
        name, placeholder, value = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        texts = data[at : at + name].decode(), data[at + name : at + name + placeholder].decode()
        at += name + placeholder
        yield Credential(name=texts[0], placeholder=texts[1]), Secret(data[at : at + value])
        at += value


class SharedVault:
    """A vault that knows the values of all workers, to mask answers for them."""

    def __init__(self, vault: Vault, shared: SharedValues, worker: int) -> None:
        self._vault = vault
        self._shared = shared
        self._worker = worker
        self._seen: tuple[int, object] = (0, None)
        self._told: deque[bytes] = deque(maxlen=KEPT)
        self._others: dict[bytes, tuple[Credential, Secret]] = {}
        self._known: tuple[tuple[Credential, Secret], ...] = ()

    def credentials(self) -> tuple[Credential, ...]:
        """Return all credentials in force."""
        return self._vault.credentials()

    def revoked_placeholders(self) -> frozenset[str]:
        """Return the placeholders that are refused for ever."""
        return self._vault.revoked_placeholders()

    async def value(self, name: str) -> Secret:
        """Return the value as it is now; the other workers know of it by then."""
        secret = await self._vault.value(name)
        owner = next((each for each in self._vault.credentials() if each.name == name), None)
        if owner is not None and secret.reveal() not in self._told:
            self._shared.tell(self._worker, owner, secret)
            self._told.append(secret.reveal())
        return secret

    def known_values(self) -> tuple[tuple[Credential, Secret], ...]:
        """Return every value that any worker gave out; the same tuple until there is another."""
        own, count = self._vault.known_values(), self._shared.count()
        if self._seen[0] != count or self._seen[1] is not own:
            self._seen = count, own
            for credential, secret in self._shared.told():
                self._others.setdefault(secret.reveal(), (credential, secret))
            while len(self._others) > KEPT:
                del self._others[next(iter(self._others))]
            mine = {secret.reveal() for _, secret in own}
            self._known = (*own, *(entry for value, entry in self._others.items() if value not in mine))
        return self._known
