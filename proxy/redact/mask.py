"""Masking: JSON values and text without what detectors find in them.

Pure. A mask is typed and stable, `[secret:aws-access-key:3f9a]`: the same secret gets the same
mask wherever it turns up. Its four digits are the start of a keyed hash, so that nobody
without the key can test guesses against them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.core.model import Finding
from proxy.redact.decode import GROWTH, MAX_DEPTH, SLACK, Layer, Root, next_layer
from proxy.redact.detector_catalog import DetectorCatalog, builtin
from proxy.redact.detectors import compile_bytes
from proxy.redact.json_text import MASK_START, UNREADABLE, WALL, Document, Text
from proxy.redact.prefilter import nothing_in
from proxy.redact.scan import EngineName, Match, scanner_for, unclaimed
from proxy.redact.suppress import cover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from proxy.core.masking import Suppression
    from proxy.core.model import Json
    from proxy.redact.hyperscan_db import DatabaseCache
    from proxy.redact.json_text import Leaf
    from proxy.redact.views import Span

DECODING_LIMIT: Final = "limits.decoding"
"""Reported as a detector where a value holds more encoded text than will be looked into."""
NUMBER_LIMIT: Final = "limits.number"
"""Reported as a detector where a number has more digits than will be looked at."""

_MIN_KEY: Final = 16
_MASK_DIGITS: Final = 4
_MASK_START: Final = compile_bytes(MASK_START)
_MAX_ROUNDS: Final = 4
_LARGE: Final = 1 << 16
_NEAR: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Hit:
    """A span of a leaf's bytes that a detector claims."""

    leaf: int
    start: int
    end: int
    detector: int
    fingerprint: str


class Masker:
    """Masks with one catalogue and one key. Safe to share between threads; satisfies `Redactor`."""

    def __init__(
        self,
        key: bytes,
        catalogue: DetectorCatalog | None = None,
        *,
        engine: EngineName = "auto",
        cache: DatabaseCache | None = None,
    ) -> None:
        """Prepare to mask; `key` must stay the same for masks and suppressions to stay the same.

        Raises ValueError for a key of fewer than 16 bytes.
        """
        if len(key) < _MIN_KEY:
            raise ValueError(f"the masking key has {len(key)} bytes; give at least {_MIN_KEY}")
        self._key = hashlib.sha256(key).digest()
        self.catalogue = catalogue or builtin()
        self._scanner = scanner_for(self.catalogue, engine, cache)
        labels = "|".join(sorted(detector.label for detector in self.catalogue.detectors))
        self._mask_regex = compile_bytes(rf"\[(?:{labels}):[0-9a-f]{{{_MASK_DIGITS}}}\]")

    def mask(
        self, value: Json, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[Json, tuple[Finding, ...]]:
        """Return `value` without what `detectors` find in it, and what was found.

        The value given is never changed; the one returned shares what needed no change, and
        is the same object where nothing was found. It may be forwarded only where every
        finding is `maskable`. Raises PolicyError for a detector name that chooses nothing.
        """
        chosen = self.catalogue.select(detectors)
        if chosen and nothing_in(value, chosen, self._scanner, (GROWTH, SLACK)):
            return value, ()
        return _Masking(self, value, chosen, suppressions).run()

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Say that nothing is found in `value`, nor in `part` of it by itself. False says nothing."""
        chosen = self.catalogue.select(detectors)
        return bool(chosen) and nothing_in(value, chosen, self._scanner, (GROWTH, SLACK), part)

    def mask_text(
        self, text: str, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[str, tuple[Finding, ...]]:
        """Mask plain text."""
        masked, findings = self.mask(text, detectors, suppressions)
        assert isinstance(masked, str)
        return masked, findings

    def hits(self, text: str, detectors: Sequence[str]) -> tuple[list[Hit], tuple[Finding, ...]]:
        """Return the spans of `text`, in bytes of UTF-8, to be masked, and the limits it ran into."""
        return _Masking(self, text, self.catalogue.select(detectors)).hits()

    def finding(self, hit: Hit, path: str = "", *, maskable: bool = True) -> Finding:
        """Return what to report of `hit`."""
        return Finding(self.catalogue.detectors[hit.detector].id, path, hit.fingerprint, maskable)

    def fingerprint(self, secret: bytes) -> str:
        """Return the sixteen digits that stand for `secret` in findings and suppressions."""
        return hashlib.blake2b(secret, key=self._key, digest_size=8).hexdigest()

    def mask_for(self, detector: int, fingerprint: str) -> str:
        """Return the text put in a secret's place."""
        return f"[{self.catalogue.detectors[detector].label}:{fingerprint[:_MASK_DIGITS]}]"

    def walled(self, texts: list[bytes]) -> list[bytes]:
        """Return `texts` with the masks in them blanked, byte for byte, so that they are not looked into."""
        joined = texts[0] if len(texts) == 1 else b"\n".join(texts)
        if b"[" not in joined or _MASK_START.search(joined) is None:
            return list(texts)
        return [self._without_masks(text) for text in texts]

    def _without_masks(self, text: bytes) -> bytes:
        if _MASK_START.search(text) is None:
            return text
        blanked = bytearray(text)
        for match in self._mask_regex.finditer(text):
            start, end = match.span()
            blanked[start:end] = WALL * (end - start)
        return bytes(blanked)

    def layers(self, data: bytes, chosen: frozenset[int], *, entirely: bool) -> Iterator[tuple[Layer, list[Match]]]:
        """Return each reading of `data` with its matches, the plain one first.

        Unless `entirely`, what counts as matched because a detector matched too often is not decoded.
        Raises DecodingLimitError where there is more to decode than is affordable.
        """
        layer: Layer | None = Root(data)
        budget = GROWTH * len(data) + SLACK
        for depth in range(MAX_DEPTH + 1):
            if layer is None:
                return
            budget -= len(layer.data)
            if budget < 0:
                raise DecodingLimitError
            survey = self._scanner.survey(layer.data)
            matches = self._scanner.settled(layer.data, chosen, survey)
            yield layer, matches
            rest = layer.data if entirely else unclaimed(matches, layer.data)
            layer = next_layer(layer, rest, self._scanner.signs(survey)) if depth < MAX_DEPTH else None


class DecodingLimitError(Exception):
    """A text decodes to more than will be looked into."""


class _Masking:
    """One run over one value."""

    def __init__(
        self, masker: Masker, value: Json, chosen: frozenset[int], suppressions: Sequence[Suppression] = ()
    ) -> None:
        self._masker = masker
        self._chosen = chosen
        self._suppressions = suppressions
        self._document = Document(value)
        self._raw = [leaf.text.encode("utf-8", "surrogatepass") for leaf in self._document.leaves]
        self._texts = masker.walled(self._raw)
        self._hits: dict[int, list[Hit]] = {}
        self._spared: list[Hit] = []
        # Of a large text what is near the last findings: the rest was looked at and is as it was.
        self._windows: dict[int, list[Span]] = {}
        self._overflow = False

    def run(self) -> tuple[Json, tuple[Finding, ...]]:
        if self._chosen:
            self._search()
        changes = {leaf: self._masked_leaf(leaf) for leaf in self._hits}
        findings = (*self._findings(changes), *self._limits())
        return self._document.rewritten(changes), findings

    def hits(self) -> tuple[list[Hit], tuple[Finding, ...]]:
        if self._chosen:
            self._search()
        return merged(hit for hits in self._hits.values() for hit in hits), tuple(self._limits())

    def _search(self) -> None:
        """Look until nothing is found: what one mask lays bare, a second look must not find."""
        for _ in range(_MAX_ROUNDS):
            found = self._look()
            if not found:
                return
            self._claim(found)
        # Text that goes on yielding findings as it is masked is made to be so.
        self._claim([self._whole_leaf(hit) for hit in self._look()])

    def _claim(self, found: Iterable[Hit]) -> None:
        fresh: dict[int, list[Hit]] = {}
        for hit in found:
            fresh.setdefault(hit.leaf, []).append(hit)
        for leaf, hits in fresh.items():
            self._hits.setdefault(leaf, []).extend(hits)
        for leaf, text in enumerate(self._texts):
            if leaf in fresh:
                self._texts[leaf] = _walled_in(text, fresh[leaf])
            if len(text) > _LARGE:
                self._windows[leaf] = _windows(fresh.get(leaf, []), len(text))

    def _whole_leaf(self, hit: Hit) -> Hit:
        return Hit(hit.leaf, 0, len(self._raw[hit.leaf]), hit.detector, hit.fingerprint)

    def _look(self) -> list[Hit]:
        text = Text(self._document, self._texts, self._windows)
        hits: list[Hit] = []
        split: list[list[Hit]] = []
        try:
            # What a suppression spares may hide something else in an encoding.
            entirely = bool(self._suppressions)
            for layer, matches in self._masker.layers(text.data, self._chosen, entirely=entirely):
                for match in matches:
                    self._place(text, layer, match, hits, split)
        except DecodingLimitError:
            self._overflow = True
        return [*hits, *self._unclaimed(split, [*hits, *self._spared])]

    def _place(self, text: Text, layer: Layer, match: Match, hits: list[Hit], split: list[list[Hit]]) -> None:
        start, end = layer.root_span(match.start, match.end)
        fingerprint = self._masker.fingerprint(layer.data[match.start : match.end])
        placed = [
            Hit(leaf, *self._whole_characters(leaf, low, high), match.detector, fingerprint)
            for leaf, low, high in text.places(start, end)
        ]
        if start < text.body_size:
            for hit in placed:
                (self._spared if self._suppressed(hit) else hits).append(hit)
        elif self._is_split(placed, match.detector):
            split.append(placed)

    def _is_split(self, placed: list[Hit], detector: int) -> bool:
        crosses = self._masker.catalogue.detectors[detector].crosses_fields
        several = len({hit.leaf for hit in placed}) > 1
        return crosses and several and not all(self._suppressed(hit) for hit in placed)

    def _whole_characters(self, leaf: int, start: int, end: int) -> tuple[int, int]:
        """Widen a span of bytes so that it cuts no character in two."""
        raw = self._raw[leaf]
        while start > 0 and raw[start] & 0xC0 == 0x80:
            start -= 1
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end += 1
        return start, end

    def _unclaimed(self, split: list[list[Hit]], hits: list[Hit]) -> Iterator[Hit]:
        """Return the split findings that are not one string's own finding run on into the next."""
        claimed: dict[int, list[Hit]] = {}
        for hit in hits:
            claimed.setdefault(hit.leaf, []).append(hit)
        for parts in split:
            if not any(_overlap(part, hit) for part in parts for hit in claimed.get(part.leaf, ())):
                yield from parts

    def _suppressed(self, hit: Hit) -> bool:
        if not self._suppressions:
            return False
        return cover(self._suppressions, self._masker.finding(hit, self._document.path(hit.leaf)))

    def _masked_leaf(self, leaf: int) -> str:
        hits = merged(self._hits[leaf])
        self._hits[leaf] = hits
        if self._document.leaves[leaf].kind == "number":
            return self._masker.mask_for(hits[0].detector, hits[0].fingerprint)
        raw = self._raw[leaf]
        parts: list[bytes] = []
        position = 0
        for hit in hits:
            parts += (
                raw[position : hit.start],
                self._masker.mask_for(hit.detector, hit.fingerprint).encode(),
            )
            position = hit.end
        return b"".join((*parts, raw[position:])).decode("utf-8", "surrogatepass")

    def _findings(self, changes: dict[int, str]) -> Iterator[Finding]:
        shown = self._document.shown_keys(changes)
        for leaf in sorted(self._hits):
            path = self._document.path(leaf, shown)
            maskable = self._is_maskable(self._document.leaves[leaf])
            found = (self._masker.finding(hit, path, maskable=maskable) for hit in self._hits[leaf])
            yield from dict.fromkeys(found)

    def _is_maskable(self, leaf: Leaf) -> bool:
        return leaf.kind != "number" and not self._document.is_binary(leaf)

    def _limits(self) -> Iterator[Finding]:
        if self._overflow:
            yield Finding(DECODING_LIMIT, "", "", maskable=False)
        for index, leaf in enumerate(self._document.leaves):
            if leaf.kind == "number" and leaf.text == UNREADABLE:
                yield Finding(NUMBER_LIMIT, self._document.path(index), "", maskable=False)


def _walled_in(text: bytes, hits: list[Hit]) -> bytes:
    """Return `text` with walls in place of `hits`."""
    walled = bytearray(text)
    for hit in hits:
        walled[hit.start : hit.end] = WALL * (hit.end - hit.start)
    return bytes(walled)


def _windows(hits: Iterable[Hit], size: int) -> list[Span]:
    """Return the parts of a text of `size` bytes that hiding `hits` may have changed the reading of."""
    windows: list[Span] = []
    for hit in sorted(hits, key=lambda hit: hit.start):
        low, high = max(0, hit.start - _NEAR), min(size, hit.end + _NEAR)
        if windows and low <= windows[-1][1]:
            windows[-1] = windows[-1][0], max(high, windows[-1][1])
        else:
            windows.append((low, high))
    return windows


def _overlap(one: Hit, other: Hit) -> bool:
    return one.start < other.end and other.start < one.end


def merged(hits: Iterable[Hit]) -> list[Hit]:
    """Return `hits` of one leaf from left to right, those that overlap as one.

    The detector that comes first in the catalogue names the whole.
    """
    result: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, hit.detector)):
        if result and hit.start < result[-1].end:
            last = result[-1]
            best = min(last, hit, key=lambda hit: hit.detector)
            result[-1] = Hit(hit.leaf, last.start, max(last.end, hit.end), best.detector, best.fingerprint)
        else:
            result.append(hit)
    return result
