"""Masking: JSON values and text without what detectors find in them.

Pure. A mask is typed and stable, `[secret:aws-access-key:3f9a]`: the same secret gets the same mask wherever it turns
up. Its four digits are the start of a keyed hash, so that nobody without the key can test guesses against them.
"""

from __future__ import annotations

import hashlib
import re
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.core.model import Finding, Json, Suppression
from proxy.redact.base64_prefilter import LARGEST_NOISE
from proxy.redact.decode import GROWTH, MAX_DEPTH, SLACK, Layer, RootLayer, next_layer
from proxy.redact.detector_catalog import DetectorCatalog, builtin
from proxy.redact.detectors import compile_bytes
from proxy.redact.json_text import BARRIER, MASK_START, UNREADABLE, Document, ScanText
from proxy.redact.prefilter import FirstScan, is_noise, is_surely_clean, prove_clean
from proxy.redact.repeats import SHORTEST_KNOWN, KnownSecrets
from proxy.redact.scan import EngineName, Match, scanner_for, unclaimed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from proxy.redact.hyperscan_db import DatabaseCache
    from proxy.redact.views import Span

DECODING_LIMIT: Final = "limits.decoding"  # reported as a detector where more is encoded than will be decoded
MATCH_LIMIT: Final = "limits.matches"  # reported as a detector where one matches more often than will be masked
NUMBER_LIMIT: Final = "limits.number"  # reported as a detector where a number has more digits than Python prints

_MIN_KEY: Final = 16
_MASK_DIGITS: Final = 4
_MASK_START: Final = compile_bytes(MASK_START)
_MAX_ROUNDS: Final = 4
_LARGE: Final = 1 << 13
_NEAR: Final = 1 << 12
_BY_START: Final = attrgetter("start", "detector")
_WILD: Final = {"**": ".*", "*": r"[^.\[\]]*", "?": r"[^.\[\]]"}


# A tuple and no dataclass, which takes three times as long: a long list of secrets has tens of thousands of these.
class MaskHit(NamedTuple):
    """A span of a leaf's bytes to be masked, and what found it."""

    leaf: int
    start: int
    end: int
    detector: int
    fingerprint: str


class DecodingLimitError(Exception):
    """A text decodes to more than is affordable."""


class Masker:
    """Masks with one catalog and one key. Safe to share between threads; satisfies `Redactor`."""

    def __init__(
        self,
        key: bytes,
        catalog: DetectorCatalog | None = None,
        *,
        engine: EngineName = "auto",
        cache: DatabaseCache | None = None,
    ) -> None:
        """Masks and suppressions stay the same only as long as `key` does. Raises ValueError below 16 bytes."""
        if len(key) < _MIN_KEY:
            raise ValueError(f"the masking key has {len(key)} bytes; give at least {_MIN_KEY}")
        self._key = hashlib.sha256(key).digest()
        self.catalog = catalog or builtin()
        self._scanner = scanner_for(self.catalog, engine, cache)
        labels = "|".join(sorted(detector.label for detector in self.catalog.detectors))
        self._mask_regex = compile_bytes(rf"\[(?:{labels}):[0-9a-f]{{{_MASK_DIGITS}}}\]")

    def mask(
        self, value: Json, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[Json, tuple[Finding, ...]]:
        """Return `value` without what `detectors` find in it, and what was found.

        The value given is never changed; the one returned shares what needed no change, and is the same object where
        nothing was found. It may be forwarded only where every finding is `maskable`. Raises PolicyError for a
        detector name that chooses nothing.
        """
        chosen = self._select(detectors)
        proof = chosen and prove_clean(value, chosen, self._scanner, (GROWTH, SLACK))
        if proof is True:
            return value, ()
        return _Masking(self, value, chosen, suppressions, proof if isinstance(proof, FirstScan) else None).run()

    def _select(self, detectors: Sequence[str]) -> frozenset[int]:
        # Rules name a few lists over and over, so nearly always it was selected before.
        return self.catalog.selections.get(tuple(detectors)) or self.catalog.select(detectors)

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Return True where nothing is found in `value`, nor in `part` of it by itself; False decides nothing."""
        chosen = self._select(detectors)
        return bool(chosen) and is_surely_clean(value, chosen, self._scanner, (GROWTH, SLACK), part)

    def finding(self, hit: MaskHit, path: str, *, maskable: bool = True) -> Finding:
        """Return what to report of `hit`."""
        return Finding(self.catalog.detectors[hit.detector].id, path, hit.fingerprint, maskable)

    def fingerprint(self, secret: bytes) -> str:
        """Return the sixteen digits that stand for `secret` in findings and suppressions."""
        return hashlib.blake2b(secret, key=self._key, digest_size=8).hexdigest()

    def mask_for(self, detector: int, fingerprint: str) -> str:
        """Return the text that replaces a secret."""
        return f"[{self.catalog.detectors[detector].label}:{fingerprint[:_MASK_DIGITS]}]"

    def blank_masks(self, texts: list[bytes]) -> list[bytes]:
        """Return `texts` with a barrier for each byte of the masks in them, so that masks are not masked again."""
        joined = texts[0] if len(texts) == 1 else b"\n".join(texts)
        if b"[" not in joined or _MASK_START.search(joined) is None:
            return list(texts)
        # Only labels that exist and four digits: anything longer in brackets could carry a secret past the scan.
        masks = self._mask_regex.finditer
        return [
            _blanked(text, [mask.span() for mask in masks(text)]) if _MASK_START.search(text) else text
            for text in texts
        ]

    def layers(
        self,
        data: bytes,
        chosen: frozenset[int],
        *,
        entirely: bool,
        first: FirstScan | None = None,
        known: KnownSecrets[tuple[int, str]] | None = None,
    ) -> Iterator[tuple[Layer, list[Match]]]:
        """Return each layer of `data` with its matches, the plain text first.

        Unless `entirely`, what counts as matched because a detector matched too often is not decoded. `first` is what
        was found in such a text before. What surely decodes to nothing for the detectors, nor to one of the `known`
        secrets, is not decoded. Raises DecodingLimitError where there is more to decode than is affordable.
        """
        is_proven = chosen.isdisjoint(self._scanner.unproven)
        layer: Layer | None = RootLayer(data)
        budget = GROWTH * len(data) + SLACK
        for depth in range(MAX_DEPTH + 1):
            if layer is None:
                return
            budget -= len(layer.data)
            if budget < 0:
                raise DecodingLimitError
            if first is not None and not depth and first.data == data:
                _, candidates, matches = first
            else:
                candidates = self._scanner.prescan(layer.data, chosen)
                matches = self._scanner.confirm(layer.data, chosen, candidates)
            yield layer, matches
            signs = self._scanner.signs(candidates)
            # Asked for here, because what is known grows while the caller takes the matches.
            is_provable = is_proven and len(layer.data) <= LARGEST_NOISE and known is not None and known.all_text
            if depth == MAX_DEPTH or (is_provable and is_noise(layer.data, signs, self._scanner, is_text=not depth)):
                return
            layer = next_layer(layer, layer.data if entirely else unclaimed(matches, layer.data), signs, budget)


class _Masking:
    """One run over one value."""

    def __init__(
        self,
        masker: Masker,
        value: Json,
        chosen: frozenset[int],
        suppressions: Sequence[Suppression] = (),
        first: FirstScan | None = None,
    ) -> None:
        self._masker = masker
        self._chosen = chosen
        self._first = first
        self._suppressions = suppressions
        self._document = Document(value)
        self._raw = [leaf.text.encode("utf-8", "surrogatepass") for leaf in self._document.leaves]
        self._texts = masker.blank_masks(self._raw)
        self._hits: dict[int, list[MaskHit]] = {}
        self._spared: list[MaskHit] = []
        # For a large text, what is near the last hits: the rest was scanned before and has not changed.
        self._windows: dict[int, list[Span]] = {}
        self._overflow: dict[str, None] = {}  # limits met, in order
        self._known: KnownSecrets[tuple[int, str]] = KnownSecrets()

    def run(self) -> tuple[Json, tuple[Finding, ...]]:
        self._search()
        changes = {leaf: self._masked_leaf(leaf) for leaf in self._hits}
        return self._document.rewritten(changes), (*self._findings(changes), *self._limits())

    def _search(self) -> None:
        """Scan until nothing is found: what one mask lays bare, a second scan must not find."""
        if not self._chosen:
            return
        for _ in range(_MAX_ROUNDS):
            if not (found := self._scan()):
                return
            self._claim(found)
            again = self._repeats()
            self._claim(again)
            self._look_near([*found, *again])
        # Text that still yields findings after so many rounds was made to do so: its leaves are masked whole.
        self._claim([hit._replace(start=0, end=len(self._raw[hit.leaf])) for hit in self._scan()])

    def _repeats(self) -> list[MaskHit]:
        """Return where else in the leaves what was found stands, without the name that gave it away."""
        hits = (
            MaskHit(leaf, *self._whole_characters(leaf, start, end), detector, fingerprint)
            for leaf, text in enumerate(self._texts)
            if len(text) >= SHORTEST_KNOWN
            for start, end, (detector, fingerprint) in self._known.found_in(text)
        )
        return [hit for hit in hits if not self._is_suppressed(hit)]

    def _claim(self, found: Iterable[MaskHit]) -> None:
        for leaf, hits in _by_leaf(found).items():
            self._hits.setdefault(leaf, []).extend(hits)
            self._texts[leaf] = _blanked(self._texts[leaf], [(hit.start, hit.end) for hit in hits])

    def _look_near(self, found: Iterable[MaskHit]) -> None:
        """Have the next scan see of each large text only what is near what this one has found in it."""
        large = [leaf for leaf, text in enumerate(self._texts) if len(text) > _LARGE]
        fresh = _by_leaf(found) if large else {}
        for leaf in large:
            self._windows[leaf] = _windows(fresh.get(leaf, ()), len(self._texts[leaf]))

    def _scan(self) -> list[MaskHit]:
        text = ScanText(self._document, self._texts, self._windows)
        hits: list[MaskHit] = []
        split: list[list[MaskHit]] = []
        try:
            # What a suppression spares may hide something else in an encoding, so all of it is decoded.
            entirely, first = bool(self._suppressions), self._first
            layers = self._masker.layers(text.data, self._chosen, entirely=entirely, first=first, known=self._known)
            for layer, matches in layers:
                again = [Match(origin[0], start, end) for start, end, origin in self._known.found_in(layer.data)]
                for match in (*matches, *again):
                    self._trace(text, layer, match, hits, split)
        except DecodingLimitError:
            self._overflow[DECODING_LIMIT] = None
        return [*hits, *_unexplained(split, [*hits, *self._spared])]

    def _trace(
        self, text: ScanText, layer: Layer, match: Match, hits: list[MaskHit], split: list[list[MaskHit]]
    ) -> None:
        """Add the parts of leaves that `match` came from: to `hits`, or to `split` where joined strings made it."""
        start, end = layer.root_span(match.start, match.end)
        spans = text.leaf_spans(start, end)
        detector = self._masker.catalog.detectors[match.detector]
        joined = start >= text.body_size
        if joined and not (detector.crosses_fields and len({leaf for leaf, _, _ in spans}) > 1):
            return  # in one string, where it was found as well
        secret = layer.data[match.start : match.end]
        fingerprint = self._masker.fingerprint(secret)
        parts = [
            MaskHit(leaf, *self._whole_characters(leaf, low, high), match.detector, fingerprint)
            for leaf, low, high in spans
        ]
        if joined:
            if not all(map(self._is_suppressed, parts)):
                split.append(parts)
            return
        meant = parts
        if self._suppressions:
            meant = [hit for hit in parts if not self._is_suppressed(hit)]
        hits += meant
        if len(meant) < len(parts):
            self._spared += (hit for hit in parts if hit not in meant)
        if meant and match.is_rest:
            self._overflow[MATCH_LIMIT] = None
        elif meant and detector.repeats:
            self._known.add(secret, (match.detector, fingerprint))

    def _whole_characters(self, leaf: int, start: int, end: int) -> Span:
        """Widen a span of bytes so that it cuts no character in two."""
        raw = self._raw[leaf]
        while start > 0 and raw[start] & 0xC0 == 0x80:
            start -= 1
        while end < len(raw) and raw[end] & 0xC0 == 0x80:
            end += 1
        return start, end

    def _is_suppressed(self, hit: MaskHit) -> bool:
        given = self._suppressions
        return bool(given) and cover(given, self._masker.finding(hit, self._document.path(hit.leaf)))

    def _masked_leaf(self, leaf: int) -> str:
        hits = self._hits[leaf]
        if len(hits) > 1:
            hits = self._hits[leaf] = _merged(hits)
        if self._document.leaves[leaf].kind == "number":
            return self._masker.mask_for(hits[0].detector, hits[0].fingerprint)
        raw = self._raw[leaf]
        parts: list[bytes] = []
        position = 0
        for hit in hits:
            parts += (raw[position : hit.start], self._masker.mask_for(hit.detector, hit.fingerprint).encode())
            position = hit.end
        return b"".join((*parts, raw[position:])).decode("utf-8", "surrogatepass")

    def _findings(self, changes: dict[int, str]) -> Iterator[Finding]:
        shown = self._document.shown_keys(changes)
        for index in sorted(self._hits):
            path, leaf = self._document.path(index, shown), self._document.leaves[index]
            # A mask is a string: a number cannot become one, and readers refuse one where base64 must stand.
            maskable = leaf.kind != "number" and not self._document.is_binary(leaf)
            hits = self._hits[index]
            findings = (self._masker.finding(hit, path, maskable=maskable) for hit in hits)
            yield from findings if len(hits) == 1 else dict.fromkeys(findings)

    def _limits(self) -> Iterator[Finding]:
        yield from (Finding(limit, "", "", maskable=False) for limit in self._overflow)
        for index, leaf in enumerate(self._document.leaves):
            if leaf.kind == "number" and leaf.text == UNREADABLE:
                yield Finding(NUMBER_LIMIT, self._document.path(index), "", maskable=False)


def _blanked(text: bytes, spans: Sequence[Span]) -> bytes:
    """Return `text`, as long as before, with barriers for what is in `spans`."""
    if len(spans) == 1:
        [(start, end)] = spans
        return b"".join((text[:start], BARRIER * (end - start), text[end:]))
    blanked = bytearray(text)
    for start, end in spans:
        blanked[start:end] = BARRIER * (end - start)
    return bytes(blanked)


def _windows(hits: Iterable[MaskHit], size: int) -> list[Span]:
    """Return the parts of a text of `size` bytes where blanking `hits` may have changed what is found."""
    windows: list[Span] = []
    for hit in sorted(hits, key=lambda hit: hit.start):
        low, high = max(0, hit.start - _NEAR), min(size, hit.end + _NEAR)
        if windows and low <= windows[-1][1]:
            windows[-1] = windows[-1][0], max(high, windows[-1][1])
        else:
            windows.append((low, high))
    return windows


def _by_leaf(hits: Iterable[MaskHit]) -> dict[int, list[MaskHit]]:
    grouped: dict[int, list[MaskHit]] = {}
    for hit in hits:
        grouped.setdefault(hit.leaf, []).append(hit)
    return grouped


def _unexplained(split: list[list[MaskHit]], hits: list[MaskHit]) -> Iterator[MaskHit]:
    """Return the split matches that are not just one string's own match run on into the next string."""
    claimed = _by_leaf(hits)
    for parts in split:
        overlaps = (
            part.start < hit.end and hit.start < part.end for part in parts for hit in claimed.get(part.leaf, ())
        )
        if not any(overlaps):
            yield from parts


def _merged(hits: Iterable[MaskHit]) -> list[MaskHit]:
    """Return `hits` of one leaf from left to right, those that overlap as one, named by the detector listed first."""
    result: list[MaskHit] = []
    for hit in sorted(hits, key=_BY_START):
        if result and hit.start < result[-1].end:
            last = result[-1]
            best = last if last.detector <= hit.detector else hit
            result[-1] = MaskHit(hit.leaf, last.start, max(last.end, hit.end), best.detector, best.fingerprint)
        else:
            result.append(hit)
    return result


def cover(suppressions: Iterable[Suppression], finding: Finding) -> bool:
    """Return whether any of `suppressions` means `finding`."""
    return any(
        entry.fingerprint in {None, finding.fingerprint}
        and (entry.detector is None or fnmatchcase(finding.detector, entry.detector))
        and (entry.path is None or _path_regex(entry.path).fullmatch(finding.path) is not None)
        for entry in suppressions
    )


@lru_cache(maxsize=256)
def _path_regex(glob: str) -> re.Pattern[str]:
    # Not fnmatch: in `files[*].name` brackets are text, `*` stays within one step, `**` crosses steps.
    parts = (_WILD.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*|\?)", glob))
    return re.compile("".join(parts), re.DOTALL)
