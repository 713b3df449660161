"""How slow this machine is just now, for bounds on processor time.

A bound on processor time holds on a busy machine, but not on a slow one: processors that are shared with other machines
take several times as long for the same work. What such a bound is there to find takes hundreds of times as long.
"""

from __future__ import annotations

import statistics
import time

REFERENCE = 0.01
"""Seconds of processor time: a third of what the work takes on a quick machine, so that a bound is never tight."""
MOST = 20.0


def slowness() -> float:
    """Return by how much a bound on processor time is to be multiplied: 3 on a quick machine, 20 at most."""
    return min(MOST, max(1.0, statistics.median(_work() for _ in range(5)) / REFERENCE))


def _work() -> float:
    start = time.process_time()
    sum(number * number for number in range(500_000))
    return time.process_time() - start
