"""Print precision and recall of every detector on the labelled set in tests/cases/secrets.

Exits 1 where a detector has no positive or no negative sample, or is wrong about one.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from proxy.redact.detector_catalog import builtin
from proxy.redact.mask import Masker
from tests.redact.labelled import Sample, load

_KEY = b"the key does not matter here"


@dataclass
class Score:
    """How a detector did; a sample of another detector that it claims is a false positive."""

    positives: int = 0
    negatives: int = 0
    found: int = 0
    wrong: list[str] = field(default_factory=list[str])
    missed: list[str] = field(default_factory=list[str])

    @property
    def precision(self) -> float:
        """Share of its findings that are right."""
        return self.found / (self.found + len(self.wrong)) if self.found or self.wrong else 0.0

    @property
    def recall(self) -> float:
        """Share of its positives that it found."""
        return self.found / self.positives if self.positives else 0.0


def score(samples: list[Sample]) -> dict[str, Score]:
    """Run every detector over every sample."""
    masker = Masker(_KEY)
    scores: dict[str, Score] = defaultdict(Score)
    for sample in samples:
        hits = {finding.detector for finding in masker.mask(sample.value, ("secrets", "pii"))[1]}
        mine = scores[sample.detector]
        mine.positives += sample.positive
        mine.negatives += not sample.positive
        if sample.positive and sample.detector in hits:
            mine.found += 1
        elif sample.positive:
            mine.missed.append(sample.text)
        for other in hits - ({sample.detector} if sample.positive else set()):
            if other == sample.detector or sample.positive:
                scores[other].wrong.append(sample.text)
    return scores


def main() -> int:
    """Print the table."""
    scores = score(load())
    failed = False
    print(f"{'detector':<34} {'positives':>9} {'negatives':>9} {'precision':>9} {'recall':>7}")
    for detector in builtin().detectors:
        mine = scores[detector.id]
        counts = f"{mine.positives:>9} {mine.negatives:>9}"
        print(f"{detector.id:<34} {counts} {mine.precision:>9.2f} {mine.recall:>7.2f}")
        for kind, texts in (("missed", mine.missed), ("wrong", mine.wrong)):
            for text in texts:
                print(f"    {kind}: {text[:100]!r}")
        failed |= not (mine.positives and mine.negatives) or bool(mine.missed or mine.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
