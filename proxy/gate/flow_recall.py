"""What one worker knows of what agents read and sent: as the store has it, read again only where that has changed."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.gate.flow_memory import Histories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxy.core.flows import FlowStore
    from proxy.flows.history import AgentHistory
    from proxy.flows.outgoing import Outgoing

WINDOW_SECONDS: Final = 3600.0
_NONCE: Final = 12


class FlowRecall:
    """The histories of agents, and the ends of what they sent."""

    def __init__(self, store: FlowStore, key: bytes, key_id: int, clock: Callable[[], float]) -> None:
        self._store = store
        self._seal = AESGCM(key)
        self._key_id = key_id.to_bytes(8)
        self._clock = clock
        self._histories = Histories(key_id)

    async def load(self, agent: str) -> tuple[AgentHistory, Mapping[str, bytes]]:
        """Return what an agent has read so far, and the ends of what it sent. Raises StoreUnavailableError."""
        known, now = self._histories.of(agent), self._clock()
        history = known.history
        # Asked before the store is read: what is written in between is read twice rather than never.
        # Of an agent that has read nothing labelled, nobody asks what it sent.
        version = self._store.version(windows=history.cursor > 0)
        if version is None or version != known.version or now >= known.tails_expire:
            found = await self._store.read(agent, history.cursor, now)
            history.update(found.entries, now)
            known.tails = self._unseal(agent, found.window)
            known.version, known.tails_expire = version, now + WINDOW_SECONDS
            if found.entries:
                self._histories.trim()
        else:
            history.update((), now)
        return history, known.tails

    async def remember_sent(self, agent: str, looked: Sequence[Outgoing]) -> None:
        """Store the ends of what an agent sends, before it is sent. Raises StoreUnavailableError."""
        if not looked:
            return
        tails = {name: tail for sent in looked for name, tail in sent.tails.items()}
        expires, known = self._clock() + WINDOW_SECONDS, self._histories.of(agent)
        await self._store.put_window(agent, self.sealed(agent, tails), expires)
        known.tails, known.tails_expire = tails, expires

    def sealed(self, agent: str, tails: Mapping[str, bytes]) -> bytes:
        """Return the ends of what an agent sent, encrypted: the store has no content."""
        nonce = secrets.token_bytes(_NONCE)
        plain = json.dumps({name: tail.decode("utf-8", "ignore") for name, tail in tails.items()}).encode()
        return self._key_id + nonce + self._seal.encrypt(nonce, plain, agent.encode())

    def _unseal(self, agent: str, window: bytes | None) -> Mapping[str, bytes]:
        """Return the ends of what an agent sent, none where another key sealed them; raises where they were changed."""
        if window is None or window[:8] != self._key_id:
            return {}
        nonce, sealed = window[8 : 8 + _NONCE], window[8 + _NONCE :]
        plain = self._seal.decrypt(nonce, sealed, agent.encode())
        return {name: tail.encode() for name, tail in json.loads(plain).items()}
