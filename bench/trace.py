"""What watching a server costs: lines read a second."""

from __future__ import annotations

import time
from pathlib import Path

from proxy.trace.strace import Reader

GOLDEN = Path(__file__).parent.parent / "tests" / "trace" / "golden"
LINES = 200_000


def read_lines() -> None:
    lines = [line for file in sorted(GOLDEN.glob("*.strace")) for line in file.read_text("latin-1").split("\n")[:-1]]
    lines *= LINES // len(lines)
    rates = []
    for _ in range(5):
        reader = Reader()
        started = time.process_time()
        for line in lines:
            reader.take(line)
        rates.append(len(lines) / (time.process_time() - started))
    print(f"lines read: {max(rates):,.0f}/s of CPU at best, {min(rates):,.0f}/s at worst of {len(rates)} runs")


if __name__ == "__main__":
    read_lines()
