"""Masking text that comes in chunks: a secret cut in two by the end of a chunk is found.

Pure. Text is held back until what follows can no longer change how it is masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import Finding
    from proxy.redact.mask import Masker, MaskHit

LOOK_AHEAD: Final = 1024
"""Bytes that are always held back: no secret outside of a finding begins so far before its end."""
LOOK_BEHIND: Final = 160
"""Bytes already returned that are scanned again with the next ones: they may hold the keyword of a secret there."""
MAX_HELD: Final = 1 << 18
"""Bytes held back at most; a finding that is longer hides the rest of the stream."""

# Text is cut after one of these only: no word, and so no encoded run, is scanned in two halves.
_STOPS: Final = (b" ", b"\t", b"\r", b"\n", b'"', b"'")


class StreamMasker:
    """Masks the chunks of one text. For one stream, and one thread at a time."""

    def __init__(self, masker: Masker, detectors: Sequence[str]) -> None:
        self._masker = masker
        self._detectors = tuple(detectors)
        self._behind = b""
        self._held = b""
        self._hiding = False
        self.findings: tuple[Finding, ...] = ()
        """What was found in the text released so far."""

    def feed(self, chunk: str) -> str:
        """Take the next chunk; return the masked text that no later chunk can change, which may be none."""
        if self._hiding:
            return ""
        self._held += chunk.encode("utf-8", "surrogatepass")
        if len(self._held) <= LOOK_AHEAD:
            return ""
        data = self._behind + self._held
        hits = self._hits(data)
        cut = self._settled(data, hits)
        # One finding fills all that may be held: the rest is part of it or follows it, and none of it may leave.
        if cut == len(self._behind) and len(self._held) > MAX_HELD:
            self._hiding = True
            cut = len(data)
        return self._release(data, hits, cut)

    def close(self) -> str:
        """Return what is left, masked. The stream takes no more chunks."""
        if self._hiding or not self._held:
            return ""
        data = self._behind + self._held
        return self._release(data, self._hits(data), len(data))

    def _hits(self, data: bytes) -> list[MaskHit]:
        hits, limits = self._masker.hits(data.decode("utf-8", "surrogatepass"), self._detectors)
        self.findings += limits
        return hits

    def _settled(self, data: bytes, hits: list[MaskHit]) -> int:
        """Return an offset that no finding and no word reaches across."""
        low = len(self._behind)
        cut = len(data) - LOOK_AHEAD
        # A finding that reaches past the cut may grow with the next chunk; hits are in order, so one pass is enough.
        for hit in hits:
            if hit.start < cut < hit.end:
                cut = max(low, hit.start)
        stop = max(data.rfind(mark, low, cut) + 1 for mark in _STOPS)
        if stop > low or len(self._held) <= MAX_HELD:
            return max(stop, low)
        # A word longer than may be held is a blob; it is cut between characters, and decoded piece by piece.
        while cut > low and data[cut] & 0xC0 == 0x80:
            cut -= 1
        return cut

    def _release(self, data: bytes, hits: list[MaskHit], cut: int) -> str:
        position = len(self._behind)
        parts: list[bytes] = []
        for hit in hits:
            if hit.end <= position or hit.start >= cut:
                continue
            parts += (data[position : hit.start], self._masker.mask_for(hit.detector, hit.fingerprint).encode())
            position = hit.end
            self.findings += (self._masker.finding(hit),)
        released = b"".join((*parts, data[position:cut]))
        self._held = data[max(cut, position) :]
        behind = self._behind + released
        start = max(0, len(behind) - LOOK_BEHIND)
        while start < len(behind) and behind[start] & 0xC0 == 0x80:  # cut no character in two
            start += 1
        self._behind = behind[start:]
        return released.decode("utf-8", "surrogatepass")
