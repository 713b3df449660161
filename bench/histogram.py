"""Times in buckets one percent wide: small, can be added up, and good enough for percentiles. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

_STEP = math.log(1.01)
_UNIT = 1e-6


@dataclass
class Histogram:
    """How often something took how long."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float) -> None:
        """Count one."""
        bucket = int(math.log(max(seconds / _UNIT, 1.0)) / _STEP)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def merge(self, counts: dict[int, int]) -> None:
        """Count another's."""
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def __len__(self) -> int:
        return sum(self.counts.values())

    def quantile(self, share: float) -> float:
        """Return the seconds that this share of them stayed within; 0 where there are none."""
        wanted, seen = share * len(self), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return math.exp((bucket + 0.5) * _STEP) * _UNIT
        return 0.0
