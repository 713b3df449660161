"""A pattern set in two stages: what is slow to search for is searched only where a quicker pattern was found. Pure.

Most patterns begin with rare text, which hyperscan skips to. Digits in groups, long runs of letters and pairs of hex
digits have none, and a few of them take as long as two hundred others. Each of these stands behind a gate: a quicker
pattern that is found in whatever it matches (a test proves it of each), so that nothing is missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.redact.encoded_spans import HEX_LINE, RUN
from proxy.redact.hyperscan_db import PatternSet

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from proxy.redact.hyperscan_db import DatabaseCache

_DIGITS: Final = r"\d(?:[ ._-]{0,2}\d){6}"
_LONG_RUN: Final = r"[A-Za-z0-9+/_-]{40}"
_HEX_PAIRS: Final = r"[0-9A-Fa-fx\s:,;-]{36}"
# By expression and not by the detector's name: one that is changed, or another of its name, stands behind no gate.
GATES: Final = {
    r"[2-6](?:[ ._-]{0,2}\d){13}": _DIGITS,
    r"[456]\d{16}": _DIGITS,
    r"[3-6](?: \d){13}": _DIGITS,
    r"\d{7}-?[A-Z]": _DIGITS,
    r"[12] ?\d{2} ?[01]\d ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}": _DIGITS,
    r"[13][1-9A-HJ-NP-Za-km-z]{25}": RUN,
    r"[5KL][1-9A-HJ-NP-Za-km-z]{50}": _LONG_RUN,
    r"[A-Za-z0-9/+]{40}": _LONG_RUN,
    HEX_LINE: _HEX_PAIRS,
}


class StagedPatterns:
    """Says which of `expressions` match, as `PatternSet.found` does. Thread-safe.

    Those whose indexes are in `apart` are searched for on request alone.
    """

    def __init__(
        self, expressions: Sequence[str], cache: DatabaseCache | None = None, apart: Collection[int] = ()
    ) -> None:
        rest = [index for index in range(len(expressions)) if index not in apart]
        self._usual = _Stages(expressions, rest, cache)
        self._apart = _Stages(expressions, sorted(apart), cache) if apart else None

    def found(self, data: bytes, *, also_apart: bool = True) -> list[int]:
        """Return the indexes of the expressions that match; of those apart, where they are asked for."""
        found = self._usual.found(data)
        return found + self._apart.found(data) if also_apart and self._apart is not None else found


class _Stages:
    def __init__(self, expressions: Sequence[str], indexes: Sequence[int], cache: DatabaseCache | None) -> None:
        behind: dict[str, list[int]] = {}
        for index in indexes:
            if expressions[index] in GATES:
                behind.setdefault(GATES[expressions[index]], []).append(index)
        self._at_once = [index for index in indexes if expressions[index] not in GATES]
        self._first = PatternSet([*(expressions[index] for index in self._at_once), *behind], cache)
        later = (([expressions[index] for index in gated], gated) for gated in behind.values())
        self._behind = [(PatternSet(texts, cache), gated) for texts, gated in later]

    def found(self, data: bytes) -> list[int]:
        found: list[int] = []
        for hit in self._first.found(data):
            if hit < len(self._at_once):
                found.append(self._at_once[hit])
            else:
                patterns, indexes = self._behind[hit - len(self._at_once)]
                found += [indexes[number] for number in patterns.found(data)]
        return found
