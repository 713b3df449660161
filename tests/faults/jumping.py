"""`interlock` whose events have a clock that jumps: `python -m tests.faults.jumping up …`."""

from __future__ import annotations

import itertools
import sys
import time

from proxy import cli
from proxy.gate.gate import Gate

HOUR, DAY, YEAR = 3600.0, 86_400.0, 31_557_600.0
JUMPS = (0.0, HOUR, -HOUR, DAY, -DAY, 0.0, 60 * DAY, -60 * DAY, 30 * YEAR, -30 * YEAR)
EVERY = 20

_asked = itertools.count()


def jumping() -> float:
    """Return the time, off by another jump every so many times."""
    return time.time() + JUMPS[next(_asked) // EVERY % len(JUMPS)]


def main() -> None:
    defaults = Gate.__init__.__kwdefaults__
    assert defaults["clock"] is time.time
    defaults["clock"] = jumping
    cli.main()


if __name__ == "__main__":
    sys.exit(main())
