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
    from collections.abc import Sequence

    from proxy.redact.hyperscan_db import DatabaseCache

_DIGITS: Final = r"\d(?:[ ._-]{0,2}\d){6}"
_HEX_PAIRS: Final = r"[0-9A-Fa-fx\s:,;-]{36}"
# By expression and not by the detector's name: one that is changed, or another of its name, stands behind no gate.
GATES: Final = {
    r"[2-6](?:[ ._-]{0,2}\d){13}": _DIGITS,
    r"[456]\d{16}": _DIGITS,
    r"[3-6](?: \d){13}": _DIGITS,
    r"\d{7}-?[A-Z]": _DIGITS,
    r"[12] ?\d{2} ?[01]\d ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}": _DIGITS,
    r"[5KL][1-9A-HJ-NP-Za-km-z]{50}": RUN,
    r"[13][1-9A-HJ-NP-Za-km-z]{25}": RUN,
    r"[A-Za-z0-9/+]{40}": RUN,
    HEX_LINE: _HEX_PAIRS,
}


class StagedPatterns:
    """Says which of `expressions` match, as `PatternSet.found` does. Thread-safe."""

    def __init__(self, expressions: Sequence[str], cache: DatabaseCache | None = None) -> None:
        behind: dict[str, list[int]] = {}
        for index, expression in enumerate(expressions):
            if expression in GATES:
                behind.setdefault(GATES[expression], []).append(index)
        self._at_once = [index for index, expression in enumerate(expressions) if expression not in GATES]
        self._first = PatternSet([*(expressions[index] for index in self._at_once), *behind], cache)
        later = (([expressions[index] for index in indexes], indexes) for indexes in behind.values())
        self._behind = [(PatternSet(texts, cache), indexes) for texts, indexes in later]

    def found(self, data: bytes) -> list[int]:
        """Return the indexes of the expressions that match."""
        found: list[int] = []
        for hit in self._first.found(data):
            if hit < len(self._at_once):
                found.append(self._at_once[hit])
            else:
                patterns, indexes = self._behind[hit - len(self._at_once)]
                found += [indexes[number] for number in patterns.found(data)]
        return found
