"""Values of the roll-out."""

from __future__ import annotations

from proxy.core.rollout import SideCounts


def test_counts_add_up() -> None:
    assert SideCounts(1, 2, 3) + SideCounts(10, 20, 30) == SideCounts(11, 22, 33)
    assert SideCounts() + SideCounts() == SideCounts()
