"""Finding what detectors describe in bytes.

Pure. Hyperscan says in one pass which detectors can match at all, RE2 then says where.
Without hyperscan the keywords say which can match: each is sought with `bytes.find`, which
needs no further dependency and gives the same findings, later.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from proxy.redact.base64_prefilter import LARGEST_NOISE, promising, unproven
from proxy.redact.decode import ANY_SIGN, NO_SIGN, Signs
from proxy.redact.detectors import KEYWORD_REACH, Detector, compile_bytes, compile_search
from proxy.redact.encoded_spans import HEX_LINE, RUN
from proxy.redact.hyperscan_db import AVAILABLE, Expressions
from proxy.redact.json_text import MASK_START, WALL
from proxy.redact.validators import VALIDATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from proxy.redact.detector_catalog import DetectorCatalog
    from proxy.redact.hyperscan_db import DatabaseCache

MAX_MATCHES = 10_000
"""Matches of one detector in one buffer after which all that follows counts as matched."""

_MAX_BAIT = 5_000
_MAX_VERDICTS = 10_000
_LONG_VERDICT = 1 << 10
_TURN = 4
_SPARE = 1 << 20
_SHARE = 16
"""What was refused is looked into as long as no more bytes are looked at again than a constant and so many times the
buffer. Short matches need less, however many and however close they are: each counts as its overlap with those before
it, and a little for the turn itself. Long ones in long ones need the square of their length."""

BLOCK = 1 << 16
OVERLAP = 1 << 12
"""Hyperscan looks at blocks, each with the end of the one before, so that RE2 need not look
at everything for a detector that has something somewhere. No detector needs more than the
overlap to match at all."""

type Region = tuple[int, int]
type Survey = dict[int, list[Region]]
"""Detectors by index, and the parts of the data where their matches may end."""

type EngineName = Literal["auto", "hyperscan", "keywords"]


@dataclass(frozen=True, slots=True)
class Match:
    """Where a detector, by its index in the catalogue, found something."""

    detector: int
    start: int
    end: int


class Engine(Protocol):
    """Tells which detectors are worth running."""

    def survey(self, data: bytes) -> Survey:
        """Say where in `data` which detectors may match; too much is slow, too little is wrong."""
        ...

    def signs(self, survey: Survey) -> Signs:
        """Say what encodings a survey of some data has shown signs of."""
        ...

    def is_noise(self, data: bytes) -> bool:
        """Say that no run of base64 characters in `data` decodes to anything for a proven detector."""
        ...


class HyperscanEngine:
    """One pass over the data for all detectors at once."""

    def __init__(self, catalogue: DetectorCatalog, cache: DatabaseCache | None = None) -> None:
        described = [detector.hint or detector.pattern for detector in catalogue.detectors]
        self._signs = range(len(described), len(described) + len(_SIGNS))
        self._sought = Expressions([*described, *_SIGNS], cache)
        self._promising = _promising(cache)

    def survey(self, data: bytes) -> Survey:
        size = len(data)
        if size <= BLOCK:
            return {hit: [(0, size)] for hit in self._sought.found(data)}
        survey: dict[int, list[Region]] = {}
        for start in range(0, size, BLOCK):
            end = min(start + BLOCK, size)
            for hit in self._sought.found(data[max(0, start - OVERLAP) : end]):
                regions = survey.setdefault(hit, [])
                joins = bool(regions) and regions[-1][1] == start
                regions.append((regions.pop()[0] if joins else start, end))
        return survey

    def signs(self, survey: Survey) -> Signs:
        return Signs(*[sign in survey for sign in self._signs]) if survey else NO_SIGN

    def is_noise(self, data: bytes) -> bool:
        return len(data) <= LARGEST_NOISE and not self._promising.any_in(data)


@functools.lru_cache(maxsize=8)
def _promising(cache: DatabaseCache | None) -> Expressions:
    return Expressions(promising(), cache)


# In the order of `Signs`; sought in the same pass as what detectors describe.
_SIGNS: Final = (HEX_LINE, RUN, MASK_START)


class KeywordEngine:
    """A search for each keyword; detectors without keywords are always worth running."""

    def __init__(self, catalogue: DetectorCatalog, _cache: DatabaseCache | None = None) -> None:
        self._keywords = [
            (index, tuple(word.encode() for word in detector.keywords))
            for index, detector in enumerate(catalogue.detectors)
        ]

    def survey(self, data: bytes) -> Survey:
        lowered = data.lower()
        return {
            index: [(0, len(data))]
            for index, words in self._keywords
            if not words or any(word in lowered for word in words)
        }

    def signs(self, _: Survey) -> Signs:
        return ANY_SIGN

    def is_noise(self, _: bytes) -> bool:
        return False


class Rule:
    """A detector ready to run."""

    def __init__(self, index: int, detector: Detector) -> None:
        self.index = index
        self.detector = detector
        self._search = compile_search(detector.pattern)
        self._allow = [compile_bytes(regex) for regex in detector.allow]
        self._keywords = tuple(word.encode() for word in detector.keywords)
        self._stopwords = tuple(word.encode() for word in detector.stopwords)
        self._validator = VALIDATORS[detector.validator] if detector.validator else None

    def find(self, data: bytes, regions: Sequence[Region], *, strictly: bool = False) -> Iterator[Match]:
        """Return the findings that end in `regions` of `data`, from left to right.

        What was refused may hide what begins inside it, so the search goes on there. Where that takes too much work,
        what is refused is a finding, too; `strictly` takes much bait for one already, whatever work it takes, and
        allows for no more work than the shortest text that holds it.
        """
        found = refused = position = reached = 0
        spare = _SPARE if strictly else _SPARE + _SHARE * len(data)
        verdicts: dict[bytes, int] = {}
        for low, high in regions:
            position = here = max(position, low - OVERLAP)
            limit = min(high + OVERLAP, len(data))
            hopeful = False
            while here < high and (spans := self._next(data, here, limit))[0][0] >= 0:
                start, end = spans[self.detector.group]
                if length := self._accepted(data, start, end, verdicts):
                    found += 1
                    position = here = start + length if found < MAX_MATCHES else len(data)
                    yield Match(self.index, start, position)
                    continue
                # Bait without a keyword anywhere near is not worth going through.
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
                if spare < 0:
                    found += 1
                    position = here = max(reached, here) if found < MAX_MATCHES else len(data)
                    yield Match(self.index, start, position)

    def _next(self, data: bytes, position: int, limit: int) -> list[Region]:
        """Return the spans of the next match from `position` to `limit`, of one that reaches further the whole."""
        spans = self._search(data, position, limit)
        if spans[0][1] == limit < len(data):
            return self._search(data, spans[0][0], len(data))
        return spans

    def _accepted(self, data: bytes, start: int, end: int, verdicts: dict[bytes, int]) -> int:
        """Return how many bytes from `start` are a finding; `verdicts` has those on what was seen before."""
        if start < 0:
            return 0  # a branch without the capture: what it takes is no finding
        secret = data[start:end]
        length = verdicts.get(secret)
        if length is None:
            length = self._verdict(secret)
            if len(verdicts) < _MAX_VERDICTS and len(secret) <= _LONG_VERDICT:
                verdicts[secret] = length
        return length if length and self._has_keyword(data, start, end) else 0

    def _verdict(self, secret: bytes) -> int:
        length = self._validator(secret) if self._validator else len(secret)
        if not length or (self.detector.entropy and entropy(secret) < self.detector.entropy):
            return 0
        lowered = secret.lower()
        if any(word in lowered for word in self._stopwords):
            return 0
        return 0 if any(regex.fullmatch(secret) for regex in self._allow) else length

    def _has_keyword(self, data: bytes, start: int, end: int) -> bool:
        """Return whether a keyword stands between `start` and `end`, or near enough and before a wall."""
        if not self._keywords:
            return True
        low = max(0, start - KEYWORD_REACH, data.rfind(WALL, max(0, start - KEYWORD_REACH), start) + 1)
        wall = data.find(WALL, end, end + KEYWORD_REACH)
        window = data[low : wall if wall >= 0 else end + KEYWORD_REACH].lower()
        return any(word in window for word in self._keywords)


def entropy(value: bytes) -> float:
    """Return the Shannon entropy of `value` in bits per byte."""
    if not value:
        return 0.0
    shares = (count / len(value) for count in Counter(value).values())
    return -sum(share * math.log2(share) for share in shares)


class Scanner:
    """Runs a catalogue over buffers. Safe to share between threads."""

    def __init__(
        self, catalogue: DetectorCatalog, engine: EngineName = "auto", cache: DatabaseCache | None = None
    ) -> None:
        """Compile what is needed to survey; a rule is compiled when it is first run.

        Raises PolicyError where hyperscan is asked for and missing.
        """
        self.catalogue = catalogue
        self._engine = _engines(engine)(catalogue, cache)
        self._rules: dict[int, Rule] = {}
        self.unproven = unproven(catalogue)
        """The detectors that may find something in what `is_noise`."""

    def matches(self, data: bytes, detectors: frozenset[int]) -> list[Match]:
        """Return the findings of `detectors` in `data`, in order of precedence."""
        return self.settled(data, detectors, self.survey(data))

    def survey(self, data: bytes) -> Survey:
        """Say where in `data` which detectors may match."""
        return self._engine.survey(data)

    def signs(self, survey: Survey) -> Signs:
        """Say what encodings a survey of some data has shown signs of."""
        return self._engine.signs(survey)

    def is_noise(self, data: bytes) -> bool:
        """Say that no run of base64 characters in `data` decodes to anything for a proven detector (noise.py)."""
        return self._engine.is_noise(data)

    def settled(self, data: bytes, detectors: frozenset[int], survey: Survey, *, strictly: bool = False) -> list[Match]:
        """Return the findings of `detectors` in `data`, of which this is the survey; `strictly` as `Rule.find` does."""
        chosen = sorted(index for index in survey if index in detectors)
        return [match for index in chosen for match in self._rule(index).find(data, survey[index], strictly=strictly)]

    def _rule(self, index: int) -> Rule:
        rule = self._rules.get(index)
        if rule is None:
            rule = self._rules[index] = Rule(index, self.catalogue.detectors[index])
        return rule


def _engines(name: EngineName) -> Callable[[DetectorCatalog, DatabaseCache | None], Engine]:
    if name == "keywords" or (name == "auto" and not AVAILABLE):
        return KeywordEngine
    if not AVAILABLE:
        raise RuntimeError("hyperscan is not installed; use the engine 'keywords' or 'auto'")
    return HyperscanEngine


def unclaimed(matches: Iterable[Match], data: bytes) -> bytes:
    """Return `data` up to where a detector that matched too often counts all that follows as matched."""
    overflow = [match.start for match in matches if match.end == len(data) and match.end - match.start > BLOCK]
    return data[: min(overflow)] if overflow else data


@functools.lru_cache(maxsize=8)
def scanner_for(catalogue: DetectorCatalog, engine: EngineName = "auto", cache: DatabaseCache | None = None) -> Scanner:
    """Return the scanner of `catalogue`, compiled once."""
    return Scanner(catalogue, engine, cache)
