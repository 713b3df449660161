"""Figures of the smaller benchmarks: named, with a unit and, where there is one, a bound; printed or given as JSON.

Each of them runs by itself (`python -m bench.policy`), and in a run of all (`python -m bench`), which asks it for JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.processes import end_cleanly, started


@dataclass(frozen=True)
class Figure:
    """One thing measured."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    def __str__(self) -> str:
        bound = ""
        if self.at_most is not None:
            bound = f"  (at most {self.at_most:g})"
        if self.at_least is not None:
            bound = f"  (at least {self.at_least:g})"
        return f"{self.name:62} {self.value:10.{_digits(self.value)}f} {self.unit}{bound}"


def _digits(value: float) -> int:
    return 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2


Measure = Callable[[bool], Iterable[Figure]]
"""Gives figures; briefly where it is told to be quick."""


def main(measure: Measure, description: str | None = None) -> None:
    """Be the command line of a benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller turns")
    options = parser.parse_args()
    end_cleanly()
    for figure in measure(options.quick):
        print(json.dumps(asdict(figure)) if options.json else figure, flush=True)


# The benchmarks of single parts, and the seconds that each may take.
PARTS = {
    "policy": 60,
    "redact": 120,
    "delay": 120,
    "two_phase": 120,
    "audit": 180,
    "events": 240,
    "trace": 240,
}

IN_A_RUN = tuple(name for name in PARTS if name != "delay")
"""Those of a run of all; the others take long and decide no goal."""
QUICK = ("policy", "redact")


def collect(name: str, folder: Path, *, quick: bool) -> tuple[list[Figure], str | None]:
    """Run one of the parts; return its figures, and why there are no more of them."""
    argv = [sys.executable, "-m", f"bench.{name}", "--json", *(["--quick"] if quick else [])]
    figures: list[Figure] = []
    with started(f"part-{name}", argv, folder, output=True) as part:
        try:
            said, _ = part.process.communicate(timeout=PARTS[name])
        except subprocess.TimeoutExpired:
            part.end()
            return figures, f"took longer than {PARTS[name]} s"
    for line in said.decode().splitlines():
        with contextlib.suppress(ValueError, TypeError):
            figures.append(Figure(**json.loads(line)))
    problem = part.said().splitlines() or ["no reason given"]
    return figures, None if part.process.returncode == 0 else problem[-1][:300]
