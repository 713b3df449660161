"""Masking text that comes in pieces: a secret cut in two by a chunk's end is found.

Pure. Text is held back until what follows can no longer change how it is masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import Finding
    from proxy.redact.mask import Hit, Masker

LOOK_AHEAD: Final = 1024
"""Bytes that are always held back: no secret outside of a finding begins so far before its end."""
LOOK_BEHIND: Final = 160
"""Bytes already given that are looked at again, for the words that name a secret."""
MAX_HELD: Final = 1 << 18
"""Bytes held back at most; a finding that is longer swallows the rest of the stream."""

_STOPS: Final = (b" ", b"\t", b"\r", b"\n", b'"', b"'")


class StreamMasker:
    """Masks the chunks of one text. For one stream, and one thread at a time."""

    def __init__(self, masker: Masker, detectors: Sequence[str]) -> None:
        self._masker = masker
        self._detectors = tuple(detectors)
        self._behind = b""
        self._held = b""
        self._swallowing = False
        self.findings: tuple[Finding, ...] = ()
        """What was found in the text given so far."""

    def feed(self, chunk: str) -> str:
        """Take the next chunk; return the masked text that is now settled, which may be none."""
        if self._swallowing:
            return ""
        self._held += chunk.encode("utf-8", "surrogatepass")
        if len(self._held) <= LOOK_AHEAD:
            return ""
        data = self._behind + self._held
        hits = self._look(data)
        cut = self._settled(data, hits)
        if cut == len(self._behind) and len(self._held) > MAX_HELD:
            self._swallowing = True
            cut = len(data)
        return self._give(data, hits, cut)

    def close(self) -> str:
        """Return what is left, masked. The stream takes no more chunks."""
        if self._swallowing or not self._held:
            return ""
        data = self._behind + self._held
        return self._give(data, self._look(data), len(data))

    def _look(self, data: bytes) -> list[Hit]:
        hits, limits = self._masker.hits(data.decode("utf-8", "surrogatepass"), self._detectors)
        self.findings += limits
        return hits

    def _settled(self, data: bytes, hits: list[Hit]) -> int:
        """Return how far neither a finding nor a word reaches beyond."""
        low = len(self._behind)
        cut = len(data) - LOOK_AHEAD
        for hit in hits:
            if hit.start < cut < hit.end:
                cut = max(low, hit.start)
        stop = max(data.rfind(mark, low, cut) + 1 for mark in _STOPS)
        if stop > low or len(self._held) <= MAX_HELD:
            return max(stop, low)
        # A word longer than may be held is a blob; it is cut, and decoded piece by piece.
        while cut > low and data[cut] & 0xC0 == 0x80:
            cut -= 1
        return cut

    def _give(self, data: bytes, hits: list[Hit], cut: int) -> str:
        position = len(self._behind)
        parts: list[bytes] = []
        for hit in hits:
            if hit.end <= position or hit.start >= cut:
                continue
            parts += (
                data[position : hit.start],
                self._masker.mask_for(hit.detector, hit.fingerprint).encode(),
            )
            position = hit.end
            self.findings += (self._masker.finding(hit),)
        given = b"".join((*parts, data[position:cut]))
        self._held = data[max(cut, position) :]
        self._behind = _whole_tail(self._behind + given)
        return given.decode("utf-8", "surrogatepass")


def _whole_tail(data: bytes) -> bytes:
    """Return the end of `data`, cutting no character in two."""
    start = max(0, len(data) - LOOK_BEHIND)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
