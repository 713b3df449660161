"""Finds passages that speak to a model: signals that stand close together, in every reading of a text. Pure.

A passage scores the weights of the kinds of signals in it, each kind once by its heaviest signal. One phrase alone is
seldom enough: what counts is an order together with secrecy, a secret, a place to send it to, or a forged turn.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final, Literal

from proxy.core.model import frozen
from proxy.injection.readings import Mark, read_marks
from proxy.redact.detectors import compile_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

type Confidence = Literal["possible", "likely", "sure"]
CONFIDENCES: Final[tuple[Confidence, ...]] = ("possible", "likely", "sure")
_LEVELS: Final = {"possible": 4, "likely": 5, "sure": 8}
WINDOW: Final = 1 << 20
OVERLAP: Final = 1 << 12
NEAR: Final = 320
"""Bytes between two signals up to which they belong to one passage."""
_LOOK_BACK: Final = 400
LONGEST: Final = 2000
"""Bytes of a passage beyond its signals, at each end."""
# From which weight on a kind is no everyday language; of the kinds that are not named, from 2 on.
_TELLING: Final = {"asks-secret": 9, "sends-out": 4, "order": 3, "secrecy": 3, "claims-priority": 9, "runs-command": 3}
# A text about injections quotes them. What stands in quotation marks there is only possible: labels, and no more.
_ABOUT: Final = re.compile(
    rb"(?i)prompt[ -]injections?|jailbreak(?:s|ing)\b|injection (?:attack|pattern|attempt|technique|string|phrase)s?"
    rb"|(?:phrase|pattern|attack|payload|string)s? (?:such as|like|is|are|include)\b"
)
_QUOTED: Final = re.compile(
    rb"\"[^\"\n]{8,400}\"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){8,400}'(?!\w)|`[^`\n]{8,400}`|<(?P<tag>code|q|blockquote)>[^<]{8,400}</(?P=tag)>"
    rb"|\xe2\x80\x9c[^\n]{8,400}?\xe2\x80\x9d|&quot;[^\n]{8,400}?&quot;"
)
_TOLD_OF: Final = re.compile(rb"(?i)(?:attempt|tr[yi]|aim|seek|intend|mean|design|use|order)(?:s|es|ed|ing|t)? to\s*\Z")
_AROUND: Final = 300
_BEGINS: Final = re.compile(rb"[.!?>]\s+|\n")
_ENDS: Final = re.compile(rb"\n\s*\n|</")


@frozen()
class Passage:
    """A part of a text that speaks to a model: where it is in bytes, by what signs, and how sure that is."""

    start: int
    end: int
    kinds: tuple[str, ...]
    score: int

    @property
    def confidence(self) -> Confidence | None:
        """How sure it is; None below the least."""
        return next((level for level in reversed(CONFIDENCES) if self.score >= _LEVELS[level]), None)

    def reaches(self, confidence: Confidence) -> bool:
        """Return whether it is at least so sure."""
        return self.score >= _LEVELS[confidence]


def find_passages(data: bytes, hidden: Sequence[tuple[int, int]] = ()) -> tuple[Passage, ...]:
    """Return the passages of a text in UTF-8, in order; `hidden` are spans of it that no person sees."""
    found: list[Passage] = []
    at = 0
    while True:
        end = min(len(data), at + WINDOW)
        marks = read_marks(data[at:end])
        found += _cluster([_shifted(mark, at) for mark in marks] if at else marks, data, hidden)
        if end == len(data):
            return tuple(_without_repeats(found)) if at else tuple(found)
        at = end - OVERLAP


def _shifted(mark: Mark, by: int) -> Mark:
    return Mark(mark.start + by, mark.end + by, mark.signal, mark.disguised)


def _cluster(marks: Iterable[Mark], data: bytes, hidden: Sequence[tuple[int, int]]) -> list[Passage]:
    made: list[Passage] = []
    group: list[Mark] = []
    for mark in sorted(marks, key=lambda each: each.end):
        if group and mark.start - group[-1].end > NEAR:
            made += _passage(group, data, hidden)
            group = []
        group.append(mark)
    return made + _passage(group, data, hidden)


def _passage(group: list[Mark], data: bytes, hidden: Sequence[tuple[int, int]]) -> list[Passage]:
    """Return the passage that a group of marks makes, if any."""
    weights: dict[str, int] = {}
    for mark in group:
        weights[mark.signal.kind] = max(weights.get(mark.signal.kind, 0), mark.signal.weight)
    claims = {mark.signal for mark in group if mark.signal.kind == "claims-priority"}
    if len(claims) > 1:
        weights["claims-priority"] = 5
    telling = any(map(_is_telling, group)) or _claims_and_asks(weights) or len(claims) > 1
    if not telling and sum(weights.values()) < _LEVELS["possible"]:
        return []
    first, last = min(mark.start for mark in group), max(mark.end for mark in group)
    if any(start < last and first < end for start, end in hidden):
        weights["hidden"] = max(weights.get("hidden", 0), 4)
        telling = telling or "order" in weights
    if any(mark.disguised and _is_telling(mark) for mark in group):
        weights["disguised"] = 3
    score = sum(weights.values())
    # Manuals speak of secrets, of sending them and of what one must do: that alone is never more than possible.
    # Nor does the mere name of a secret make more of anything.
    if not telling or score - (weights.get("asks-secret") == 1) < _LEVELS["likely"]:
        score = min(score, _LEVELS["likely"] - 1)
    if score >= _LEVELS["likely"] and "hidden" not in weights and _only_quotes(group, data, first, last):
        score = _LEVELS["possible"]
    if score < _LEVELS["possible"]:
        return []
    first = min(_start_of(mark, data) for mark in group)
    return [Passage(_begin(data, first), _end(data, last), tuple(weights), score)]


def _only_quotes(group: list[Mark], data: bytes, first: int, last: int) -> bool:
    """Return whether all that is telling is quoted or told of, by a text that says it is about injections."""
    low, high = max(0, first - _AROUND), last + _AROUND
    around = data[low:high]
    spans = [(low + found.start(), low + found.end()) for found in _QUOTED.finditer(around)]
    unquoted = _QUOTED.sub(b" ", around)
    if not spans or _ABOUT.search(unquoted) is None:
        return False
    ends: dict[tuple[str, int], int] = {}
    for mark in group:
        if _is_telling(mark):  # the same match may be told with several ends: the first one counts
            key = mark.signal.pattern, _start_of(mark, data)
            ends[key] = min(mark.end, ends.get(key, mark.end))
    return all(
        any(start <= at and end <= stop for start, stop in spans) or _TOLD_OF.search(data[max(0, at - 20) : at])
        for (_, at), end in ends.items()
    )


def _start_of(mark: Mark, data: bytes) -> int:
    """Return where the match of a mark begins, as far as that can be told: hyperscan only says where it ends."""
    low = max(0, mark.end - _LOOK_BACK)
    starts = [match.start() for match in _regex(mark.signal.pattern).finditer(data[low : mark.end])]
    return low + int(starts[-1]) if starts else mark.start


@functools.cache
def _regex(pattern: str) -> Any:
    return compile_bytes(pattern)


def _claims_and_asks(weights: dict[str, int]) -> bool:
    """Return whether one tool speaks of the use of another and of a secret: no honest one does both."""
    return weights.get("claims-priority", 0) > 0 and weights.get("asks-secret", 0) > 1


def _is_telling(mark: Mark) -> bool:
    """Return whether a mark is more than any manual has."""
    return mark.signal.weight >= _TELLING.get(mark.signal.kind, 2)


def _begin(data: bytes, at: int) -> int:
    """Return where the sentence or line of `at` begins."""
    low = max(0, at - LONGEST)
    start = low
    for match in _BEGINS.finditer(data, low, at):
        start = match.end()
    return start


def _end(data: bytes, at: int) -> int:
    """Return where the paragraph of `at` ends; where that announces something, the next one's end."""
    high = min(len(data), at + LONGEST)
    found = _ENDS.search(data, at, high)
    if found is None:
        return high
    if data[at : found.start()].rstrip().endswith(b":") and (after := _ENDS.search(data, found.end(), high)):
        return after.start()
    return found.start()


def _without_repeats(found: list[Passage]) -> list[Passage]:
    """Return passages without those that two windows both saw."""
    kept: list[Passage] = []
    for passage in found:
        if kept and passage.start < kept[-1].end:
            kept[-1] = max(kept[-1], passage, key=lambda each: each.score)
        else:
            kept.append(passage)
    return kept
