"""Which site got which credential first. The same credential anywhere else is one that was carried off.

What is kept is a keyed hash of each, in memory and where workers share what they know. Nothing of it outlives the
proxy.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from proxy.core.randomness import surprise
from proxy.policy.issuers import owner_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxy.core.interfaces import SharedCalls

SHORTEST: Final = 16
LONGEST: Final = 4096
MAX_OWNERS: Final = 20_000
MAX_TOKENS: Final = 2000
_LEAST_SURPRISE: Final = 5.0
_HEX: Final = re.compile(r"[0-9a-fA-F]{24,}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.~+/=%-]{16,}")
_SPLIT: Final = re.compile(r"[\s;,]+")


class CredentialOwners:
    """Learns owners, and tells of credentials that are somebody else's. Safe to share between threads."""

    def __init__(self, key: bytes, shared: SharedCalls | None = None) -> None:
        self._key = hashlib.sha256(b"credentials" + key).digest()
        self._shared = shared
        self._owners: dict[str, str] = {}

    def learn(self, host: str, credentials: dict[str, list[str]]) -> bool:
        """Note that `host` gets these; return False where one of them is another site's."""
        owner = owner_of(host)
        firsts = [self._own(token, owner) for token in credential_tokens(credentials)]  # all of them are learned
        return all(first == owner for first in firsts)

    def moved(self, host: str, texts: Iterable[tuple[str, str]]) -> Iterator[str]:
        """Return the places of the texts in which a credential of another site stands."""
        self._refresh()
        if not self._owners:
            return
        owner, left = owner_of(host), MAX_TOKENS
        for place, text in texts:
            if len(text) < SHORTEST:
                continue
            tokens = _tokens(text, left)
            left -= len(tokens)
            if any(self._owner(token) not in {None, owner} for token in tokens):
                yield place

    def _own(self, token: str, owner: str) -> str:
        digest = self._digest(token)
        known = self._owners.get(digest)
        if known is None:
            known = self._shared.own_credential(digest, owner) if self._shared is not None else owner
            self._remember(digest, known)
        return known

    def _owner(self, token: str) -> str | None:
        return self._owners.get(self._digest(token))

    def _remember(self, digest: str, owner: str) -> None:
        if len(self._owners) >= MAX_OWNERS:
            del self._owners[next(iter(self._owners))]
        self._owners[digest] = owner

    def _refresh(self) -> None:
        """Learn what other workers have learned since."""
        if self._shared is not None:
            for digest, owner in self._shared.new_credentials():
                self._remember(digest, owner)

    def _digest(self, token: str) -> str:
        return hashlib.blake2b(token.encode("utf-8", "replace"), key=self._key, digest_size=16).hexdigest()


def credential_tokens(credentials: dict[str, list[str]]) -> Iterator[str]:
    """Return what of the headers that one logs in with is a secret: long, and no word."""
    for name, values in credentials.items():
        for value in values:
            for piece in _SPLIT.split(value[:LONGEST]):
                token = piece.partition("=")[2] if name == "cookie" else piece
                if _is_secret(token):
                    yield token


def _is_secret(token: str) -> bool:
    if not SHORTEST <= len(token) <= LONGEST:
        return False
    return _HEX.fullmatch(token) is not None or (
        any(c.isdigit() for c in token) and surprise(token.encode("utf-8", "ignore")) >= _LEAST_SURPRISE
    )


def _tokens(text: str, most: int) -> list[str]:
    """Return what in a text may be a credential: its long words, and the values of `name=value`."""
    words = _TOKEN.findall(text)[: max(0, most)]
    return [*words, *(word.split("=")[1] for word in words if "=" in word)]
