"""The risk score of a proposal, from 0 (steady) to 1. Pure, no I/O.

Three signals: two candidate outputs that use other words, that name other numbers, and a prompt that is not the tool's
baseline. A signal that cannot be had is absent, never 0: the weights are shared out among those present, and where
there are none the proposal is blocked. docs/two-phase.md has the formulas.

All of it is linear in the length of its input.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal

from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLACES: Final = 6
_WORD: Final = re.compile(r"\w+")
# A sign counts where it does not join two words (10-20, INV-7); a currency may stand between it and the digits.
# Digits in groups of three are one number. No part can match the same text in two ways, so nothing is tried twice.
_NUMBER: Final = re.compile(
    r"(?P<sign>(?<!\w)[+\-\u2212])?[$€£¥]?"
    r"(?P<digits>(?:\d{1,3}(?:[,_'\u2019\u00a0\u2009\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\d)\.\d+)"
    r"(?P<exponent>[eE][+\-\u2212]?\d+)?"
)
_SEPARATORS: Final = dict.fromkeys(map(ord, ",_'\u2019\u00a0\u2009\u202f"))


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a proposal: its signals, why others are missing, and whether it is blocked."""

    composite: float | None
    signals: Mapping[str, float]
    absent: Mapping[str, str]
    blocked: bool
    reason: Literal["low_integrity", "no_signals"] | None


def score(
    candidates: Sequence[str] | None,
    prompt: str | None,
    baseline_hash: str | None,
    weights: Mapping[str, float],
    threshold: float,
    *,
    no_candidates: str = "no candidate outputs were given",
) -> Score:
    """Score a proposal. It is blocked at `threshold` and above, and if no signal has a weight."""
    found: dict[str, float | str] = {
        **_compare(candidates, no_candidates),
        "prompt_drift": prompt_drift(prompt, baseline_hash),
    }
    signals = {name: round(value, PLACES) for name, value in found.items() if not isinstance(value, str)}
    absent = {name: why for name, why in found.items() if isinstance(why, str)}
    composite = combine(signals, weights)
    if composite is None:
        return Score(None, signals, absent, blocked=True, reason="no_signals")
    blocked = not composite < threshold
    return Score(composite, signals, absent, blocked, "low_integrity" if blocked else None)


def combine(signals: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """Return the weighted mean of `signals`; None if none has a weight."""
    total = math.fsum(weights.get(name, 0.0) for name in signals)
    if not total > 0:
        return None
    # Shares first: a weight near zero times a value is zero, and a bad proposal would score as a good one.
    return round(math.fsum(weights.get(name, 0.0) / total * value for name, value in signals.items()), PLACES)


def _compare(candidates: Sequence[str] | None, no_candidates: str) -> dict[str, float | str]:
    if candidates is None or len(candidates) != 2:
        why = f"two candidate outputs are needed, not {len(candidates)}" if candidates else no_candidates
        return {"output_instability": why, "numeric_variance": why}
    first, second = candidates
    variance = numeric_variance(first, second)
    return {
        "output_instability": output_instability(first, second),
        "numeric_variance": "neither candidate output has a number" if variance is None else variance,
    }


def output_instability(first: str, second: str) -> float:
    """Return 1 minus the Jaccard similarity of the texts' sets of words, in any case; 0 where neither has any."""
    one, two = (set(_WORD.findall(text.casefold())) for text in (first, second))
    together = one | two
    return 1 - len(one & two) / len(together) if together else 0.0


def numeric_variance(first: str, second: str) -> float | None:
    """Return the mean relative difference of the texts' numbers, paired in order; None where neither has any.

    A pair differs by |a - b| / max(|a|, |b|), at most 1; a number without partner by 1.
    """
    ours = numbers(first)
    if first == second:
        return 0.0 if ours else None
    pairs = list(zip_longest(ours, numbers(second)))
    return math.fsum(_difference(a, b) for a, b in pairs) / len(pairs) if pairs else None


def numbers(text: str) -> list[float]:
    """Return the numbers in `text`, with signs, decimals, thousands separators and exponents."""
    parts = ((m["sign"] or "", m["digits"].translate(_SEPARATORS), m["exponent"] or "") for m in _NUMBER.finditer(text))
    return [float("".join(number).replace("\u2212", "-")) for number in parts]


def _difference(a: float | None, b: float | None) -> float:
    if a is None or b is None:
        return 1.0
    if a == b:
        # Two numbers too large for a float may be any two numbers.
        return 0.0 if math.isfinite(a) else 1.0
    difference = abs(a - b) / max(abs(a), abs(b))
    return min(difference, 1.0) if math.isfinite(difference) else 1.0


def prompt_drift(prompt: str | None, baseline_hash: str | None) -> float | str:
    """Return 0 if the prompt is the baseline's, else 1; or the reason why they cannot be compared."""
    if prompt is None or not normal_prompt(prompt):
        return "no prompt was given"
    if baseline_hash is None:
        return "the tool has no baseline prompt"
    return 0.0 if prompt_hash(prompt) == baseline_hash else 1.0


def normal_prompt(prompt: str) -> str:
    """Return the form in which prompts are compared.

    Invisible characters are dropped, compatibility forms (NFKC) and case folded,
    and each run of white space is one space, none at the ends.
    """
    return " ".join(fold(prompt).split())


def prompt_hash(prompt: str) -> str:
    """Return the SHA-256 of a prompt's normal form, as hex digits; half surrogate pairs count as they stand."""
    return hashlib.sha256(normal_prompt(prompt).encode("utf-8", "surrogatepass")).hexdigest()
