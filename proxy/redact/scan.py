"""Scanning bytes for what detectors describe.

Pure. A prescan by hyperscan says in one pass which detectors may match at all, RE2 then says where. Without hyperscan
the keywords say which may match: each is searched for with `bytes.find`. The findings are the same, only later.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from proxy.redact.base64_prefilter import LARGEST_NOISE, clue_patterns, unproven
from proxy.redact.decode import ANY_SIGN, NO_SIGN, EncodingSigns
from proxy.redact.detectors import KEYWORD_REACH, NAME_REACH, Detector, compile_search, compile_test, longest_match
from proxy.redact.encoded_spans import HEX_LINE, LONGEST_BREAK, RUN, first_runs
from proxy.redact.hyperscan_db import AVAILABLE, DatabaseCache, PatternSet
from proxy.redact.json_text import BARRIER, MASK_START
from proxy.redact.staged_patterns import StagedPatterns
from proxy.redact.validators import VALIDATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from proxy.redact.detector_catalog import DetectorCatalog

# Matches of one detector in one buffer after which all that follows counts as matched. Tables of a hundred thousand
# addresses exist; to mask as many takes seconds.
MAX_MATCHES = 100_000

_MAX_BAIT = 5_000
_MAX_VERDICTS = 50_000
_LONG_VERDICT = 1 << 8
_LONG_TEXT = 1 << 10
_FEW_WORDS = 32
_JUDGED = 1 << 12
# A refused match is searched again from its second byte, for as long as the bytes searched twice are no more than a
# constant and a multiple of the buffer. Short matches need less, however many and however close they are: each counts
# as its overlap with those before it, and a little for the turn itself. Long ones in long ones need the square of
# their length, as in `secret=token=` repeated.
_TURN = 4
_SPARE = 1 << 20
_SHARE = 4

# From so many bytes on, matches of a detector are located by hyperscan first, if its regex is short and they are few.
_LONG_SEARCH = 1 << 12
_SHORT_PATTERN = 80
_FEW_ENDS = 16

# Hyperscan scans blocks, each with the end of the one before, so that RE2 need not scan everything for a detector
# that matches somewhere. No detector needs more than the overlap to match at all.
BLOCK = 1 << 16
OVERLAP = 1 << 12

type Region = tuple[int, int]
type Candidates = dict[int, list[Region]]  # detectors by index, and the parts of the data where their matches may end

type EngineName = Literal["auto", "hyperscan", "keywords"]


@dataclass(frozen=True, slots=True)
class Match:
    """Where a detector, by its index in the catalog, found something."""

    detector: int
    start: int
    end: int
    is_rest: bool = False  # all that follows one match too many, and not a finding by itself


class DetectorMatcher:
    """A detector compiled: its regex, and the checks that a match must pass."""

    def __init__(self, index: int, detector: Detector) -> None:
        self.index = index
        self.detector = detector
        self.reach = OVERLAP  # how far around a region is searched for the matches that end in it
        self._search = compile_search(detector.pattern)
        # One alternation and not a search for each, which takes longer the more there are.
        self._is_allowed = detector.allow and compile_test("|".join(f"(?:{r})" for r in detector.allow), whole=True)
        self._has_word = detector.keywords and _one_of(detector.keywords)
        self._has_stopword = detector.stopwords and _one_of(detector.stopwords)
        self._is_after = detector.not_after and compile_test(f"(?:{detector.not_after})$")
        self._is_before = detector.not_before and compile_test(detector.not_before, at_start=True)
        self._validator = VALIDATORS[detector.validator] if detector.validator else None

    def find(self, data: bytes, regions: Sequence[Region], *, strictly: bool = False) -> Iterator[Match]:
        """Return the findings that end in `regions` of `data`, from left to right.

        A refused match may hide what begins inside it, so the search continues there. Where that takes too much work,
        what is refused is a finding, too; `strictly` treats much bait as one already, whatever work it takes, and
        allows for no more work than the shortest text that holds it.
        """
        found = refused = position = reached = 0
        spare = _SPARE if strictly else _SPARE + _SHARE * len(data)
        verdicts: dict[bytes, int] = {}
        for low, high in regions:
            position = here = max(position, low - self.reach)
            limit = min(high + self.reach, len(data))
            hopeful = False
            while here < high and (spans := self._next(data, here, limit))[0][0] >= 0:
                start, end = spans[self.detector.group]
                if length := self._accepted(data, start, end, verdicts):
                    found += 1
                    position = here = start + length if found < MAX_MATCHES else len(data)
                    yield Match(self.index, start, position, found >= MAX_MATCHES)
                    continue
                # Without a keyword anywhere near, nothing in this region can be accepted.
                hopeful = hopeful or self._has_keyword(data, here, limit)
                if not hopeful:
                    break
                begin, stop = spans[0]
                if start < 0:
                    here = max(here + 1, stop)
                    continue
                refused += 1
                if begin < reached:
                    spare -= _TURN + min(reached, stop) - begin
                reached = max(reached, stop)
                if strictly and refused > _MAX_BAIT:
                    yield Match(self.index, start, len(data))
                    return
                position = here = begin + 1
                # Out of work: fail closed, and mask as far as the refused matches reach.
                if spare < 0:
                    found += 1
                    position = here = max(reached, here) if found < MAX_MATCHES else len(data)
                    yield Match(self.index, start, position, found >= MAX_MATCHES)

    def _next(self, data: bytes, position: int, limit: int) -> list[Region]:
        """Return the spans of the next match from `position` to `limit`; a match that reaches further is whole."""
        spans = self._search(data, position, limit)
        if spans[0][1] == limit < len(data):
            return self._search(data, spans[0][0], len(data))
        return spans

    def _accepted(self, data: bytes, start: int, end: int, verdicts: dict[bytes, int]) -> int:
        """Return how many bytes from `start` are a finding; `verdicts` has those on what was seen before."""
        if start < 0:
            return 0  # a branch without the capture: what it takes is no finding
        secret = data[start:end]
        if (length := verdicts.get(secret)) is None:
            length = self._verdict(secret)
            if len(verdicts) < _MAX_VERDICTS and len(secret) <= _LONG_VERDICT:
                verdicts[secret] = length
        if not length or not self._has_keyword(data, start, end) or self._is_spared(data, start, start + length):
            return 0
        return length

    def _is_spared(self, data: bytes, start: int, end: int) -> bool:
        """Return whether what stands before or after says that this is no secret."""
        if self._is_after and self._is_after(data[max(0, start - NAME_REACH) : start]):
            return True
        return bool(self._is_before and self._is_before(data[end : end + NAME_REACH]))

    def _verdict(self, secret: bytes) -> int:
        length = self._validator(secret) if self._validator else len(secret)
        if not length or (self.detector.entropy and entropy(secret) < self.detector.entropy):
            return 0
        if (self._has_stopword and self._has_stopword(secret.lower())) or (
            self._is_allowed and self._is_allowed(secret)
        ):
            return 0
        return length

    def _has_keyword(self, data: bytes, start: int, end: int) -> bool:
        """Return whether a keyword stands between `start` and `end`, or near enough and before a barrier."""
        if not self._has_word:
            return True
        low = max(0, start - KEYWORD_REACH, data.rfind(BARRIER, max(0, start - KEYWORD_REACH), start) + 1)
        barrier = data.find(BARRIER, end, end + KEYWORD_REACH)
        window = data[low : barrier if barrier >= 0 else end + KEYWORD_REACH].lower()
        return self._has_word(window)


def _one_of(words: Sequence[str]) -> Callable[[bytes], bool]:
    literals = [word.encode() for word in words]
    # Literals alone, so that `re` has nothing to go back for.
    search = re.compile(b"|".join(map(re.escape, literals))).search

    def has_one(text: bytes) -> bool:
        # `in` takes a word at a time, and each at a hundred times the speed of `re`: in a long text that is quicker.
        if len(text) > _LONG_TEXT and len(literals) <= _FEW_WORDS:
            return any(word in text for word in literals)
        return search(text) is not None

    return has_one


def entropy(value: bytes) -> float:
    """Return the Shannon entropy of `value` in bits per byte; of a long one, of its first 4 KB."""
    value = value[:_JUDGED]
    if not value:
        return 0.0
    size = len(value)
    return math.log2(size) - sum(count * math.log2(count) for count in Counter(value).values() if count > 1) / size


class Scanner:
    """Runs a catalog over buffers; finds the detectors to run by their keywords. Safe to share between threads."""

    signs_of_none = ANY_SIGN  # what `signs` returns where the prescan finds no candidates

    def __init__(self, catalog: DetectorCatalog) -> None:
        self.catalog = catalog
        # Compiled on first use: to compile all of them takes 0.12 s, and most never match.
        self._matchers: dict[int, DetectorMatcher] = {}
        self._keywords = [
            (index, tuple(word.encode() for word in detector.keywords))
            for index, detector in enumerate(catalog.detectors)
        ]
        self.unproven = unproven(catalog)  # the detectors that may find something in what `is_noise`

    def prescan(self, data: bytes, _chosen: frozenset[int]) -> Candidates:
        """Return where in `data` which detectors may match: those chosen, and it may be others.

        Too much makes a scan slow, too little makes it wrong.
        """
        lowered = data.lower()
        whole = [(0, len(data))]
        return {i: whole for i, words in self._keywords if not words or any(word in lowered for word in words)}

    def signs(self, _candidates: Candidates) -> EncodingSigns:
        """Return which encodings the prescan of some data has shown signs of."""
        return ANY_SIGN

    def is_noise(self, _data: bytes) -> bool:
        """Return True where no run of base64 in `data` decodes to anything for a proven detector; False: unknown."""
        return False

    def matches(self, data: bytes, detectors: frozenset[int]) -> list[Match]:
        """Return the findings of `detectors` in `data`, in order of precedence."""
        return self.confirm(data, detectors, self.prescan(data, detectors))

    def confirm(
        self, data: bytes, detectors: frozenset[int], candidates: Candidates, *, strictly: bool = False
    ) -> list[Match]:
        """Return the findings of `detectors` among the `candidates` in `data`; `strictly` as for `find`."""
        chosen = sorted(index for index in candidates if index in detectors)
        found: list[Match] = []
        for index in chosen:
            if (matcher := self._matchers.get(index)) is None:
                matcher = self._matchers[index] = self._compiled(index)
            found += matcher.find(data, self._regions(index, data, candidates[index]), strictly=strictly)
        return found

    def _compiled(self, index: int) -> DetectorMatcher:
        return DetectorMatcher(index, self.catalog.detectors[index])

    def _regions(self, _index: int, _data: bytes, regions: list[Region]) -> list[Region]:
        """Return where in `regions` of `data` matches of a detector may end."""
        return regions


# In the order of `EncodingSigns`; searched for in the same pass as the detectors.
_SIGNS: Final = (HEX_LINE, RUN, MASK_START)
# Families for what leaves, which hardly any rule masks with: searched for where a rule names them.
_APART: Final = ("wallet.", "shape.")


class HyperscanScanner(Scanner):
    """Finds the detectors to run in one pass over the data for all of them."""

    signs_of_none = NO_SIGN  # the signs are searched for in the same pass: none were there

    def __init__(self, catalog: DetectorCatalog, cache: DatabaseCache | None = None) -> None:
        super().__init__(catalog)
        # A hint is found in every match of its regex (a test proves it of each), so searching for it misses nothing.
        described = [detector.hint or detector.pattern for detector in catalog.detectors]
        self._sign_indexes = range(len(described), len(described) + len(_SIGNS))
        self._apart = frozenset(
            index for index, detector in enumerate(catalog.detectors) if detector.id.startswith(_APART)
        )
        self._patterns = StagedPatterns([*described, *_SIGNS], cache, self._apart)
        self._clues = _clues(cache)
        self._ends: dict[int, PatternSet] = {}  # of detectors that matched in some long text

    def prescan(self, data: bytes, chosen: frozenset[int]) -> Candidates:
        size = len(data)
        also_apart = not self._apart.isdisjoint(chosen)
        if size <= BLOCK:
            return {index: [(0, size)] for index in self._patterns.found(data, also_apart=also_apart)}
        candidates: Candidates = {}
        for start in range(0, size, BLOCK):
            end = min(start + BLOCK, size)
            for index in self._patterns.found(data[max(0, start - OVERLAP) : end], also_apart=also_apart):
                regions = candidates.setdefault(index, [])
                joins = bool(regions) and regions[-1][1] == start
                regions.append((regions.pop()[0] if joins else start, end))
        return candidates

    def _compiled(self, index: int) -> DetectorMatcher:
        matcher, detector = super()._compiled(index), self.catalog.detectors[index]
        # Short ones alone are compiled in a few milliseconds.
        if detector.hint is None and len(detector.pattern) <= _SHORT_PATTERN:
            longest = longest_match(detector.pattern)
            if longest is not None and longest <= OVERLAP:
                matcher.reach = longest + 1
                self._ends[index] = PatternSet([detector.pattern], every_match=True)
        return matcher

    def _regions(self, index: int, data: bytes, regions: list[Region]) -> list[Region]:
        # RE2 takes ten times as long for a text as hyperscan does for one detector.
        if len(data) < _LONG_SEARCH or (patterns := self._ends.get(index)) is None:
            return regions
        ends = patterns.few_ends(data, _FEW_ENDS)
        return regions if ends is None else [(end - 1, end) for end in ends]

    def signs(self, candidates: Candidates) -> EncodingSigns:
        return EncodingSigns(*[sign in candidates for sign in self._sign_indexes])

    def is_noise(self, data: bytes) -> bool:
        if len(data) > LARGEST_NOISE:
            return False
        if len(data) < _LONG_SEARCH:
            return not self._clues.any_in(data)
        # Clues outside runs are no clues, and most of a long text is no run.
        runs, at = first_runs(data)
        parts = [data[start : end + LONGEST_BREAK] for start, end in runs]
        return not self._clues.any_in(b" ".join((*parts, data[at:])))


@functools.lru_cache(maxsize=8)
def _clues(cache: DatabaseCache | None) -> PatternSet:
    return PatternSet(clue_patterns(), cache)


def unclaimed(matches: Iterable[Match], data: bytes) -> bytes:
    """Return `data` up to where a detector that matched too often counts all that follows as matched."""
    overflow = [match.start for match in matches if match.is_rest]
    return data[: min(overflow)] if overflow else data


@functools.lru_cache(maxsize=8)
def scanner_for(catalog: DetectorCatalog, engine: EngineName = "auto", cache: DatabaseCache | None = None) -> Scanner:
    """Return the scanner of `catalog`, compiled once. Raises RuntimeError where hyperscan is wanted and missing."""
    if engine == "keywords" or (engine == "auto" and not AVAILABLE):
        return Scanner(catalog)
    if not AVAILABLE:
        raise RuntimeError("hyperscan is not installed; use the engine 'keywords' or 'auto'")
    return HyperscanScanner(catalog, cache)
