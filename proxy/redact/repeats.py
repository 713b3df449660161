"""Other places of secrets that were found once: what is a secret beside its name is one without it, too.

Pure. The work is linear: a text is walked word by word, and each word is looked up. Only distinctive secrets count, so
that a password `password1` does not mask that word everywhere.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.core.randomness import surprise
from proxy.redact.base64_prefilter import has_text

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORTEST_KNOWN: Final = 8
_SHORTEST_WORD: Final = 4
_MOST_ALIKE: Final = 16  # secrets with the same longest word that are kept; more were made to cost time
_FEW: Final = 32
_WORD: Final = re.compile(rb"[A-Za-z0-9]{%d,}" % _SHORTEST_WORD)
_DIGIT: Final = re.compile(rb"[0-9]")
_LEAST_SURPRISE: Final = 5.2


class KnownSecrets[Origin]:
    """Secrets found so far, each with where it came from."""

    def __init__(self) -> None:
        # By its longest word: which secret, where in it the word stands, and where the secret was found.
        self._by_word: dict[bytes, dict[bytes, tuple[int, Origin]]] = {}
        self._seen: set[bytes] = set()
        self.all_text = True  # whether each of them has as many bytes of text in a row as is none in what `is_noise`

    def add(self, secret: bytes, origin: Origin) -> None:
        """Remember a secret, unless it could as well be an ordinary word."""
        if secret in self._seen:
            return
        self._seen.add(secret)
        words: list[bytes] = _WORD.findall(secret)
        if not words or not _is_distinctive(secret):
            return
        longest = max(words, key=len)
        alike = self._by_word.setdefault(longest, {})
        if len(alike) < _MOST_ALIKE:
            self.all_text = self.all_text and has_text(secret)
            # As a whole word: a longer one holds it only if that is longer, and then it is not the longest.
            alike.setdefault(secret, (secret.index(longest), origin))

    def found_in(self, data: bytes) -> Iterator[tuple[int, int, Origin]]:
        """Return the spans of `data` that hold a known secret as a whole."""
        known = self._by_word
        if not known or (len(known) <= _FEW and not any(word in data for word in known)):
            return
        for match in _WORD.finditer(data):
            for secret, (offset, origin) in known.get(match.group(), {}).items():
                start = match.start() - offset
                if start >= 0 and data.startswith(secret, start) and _is_whole(data, start, start + len(secret)):
                    yield start, start + len(secret), origin


def _is_distinctive(secret: bytes) -> bool:
    if len(secret) < SHORTEST_KNOWN:
        return False
    return (_DIGIT.search(secret) is not None and secret.swapcase() != secret) or surprise(secret) >= _LEAST_SURPRISE


def _is_whole(data: bytes, start: int, end: int) -> bool:
    """Return whether a span is no part of a longer word."""
    before, after = data[max(0, start - 1) : start], data[end : end + 1]
    return not (before.isalnum() and data[start : start + 1].isalnum()) and not (
        after.isalnum() and data[end - 1 : end].isalnum()
    )
