"""Three replicas with two workers each on one Postgres behind a balancer: kills, rolling restarts, rolling policies.

Prints what was lost, executed or recorded twice, decided by a policy older than two seconds, and dropped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fleet import scene
from tests.support.harness import start_python_server
from tests.support.postgres import DURABLE, Postgres


def main() -> int:
    """Run it; return 1 where something was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=2.5, help="how long the loop runs; starts and counts come on top"
    )
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    postgres = Postgres(DURABLE)
    try:
        with tempfile.TemporaryDirectory(prefix="interlock-fleet-") as folder, postgres.lend() as url:
            place = Path(folder)
            with start_python_server("lenient", place / "server") as server:
                counts = scene.run(
                    place, url, server, 60 * chosen.minutes, replicas=chosen.replicas, workers=chosen.workers
                )
    finally:
        postgres.stop()
    for name, value in asdict(counts).items():
        shown = f"{min(value)} to {max(value)}" if name == "descriptors" and value else value
        print(f"{name.replace('_', ' '):18} {shown}")
    print("good" if counts.good else "NOT GOOD")
    return 0 if counts.good else 1


if __name__ == "__main__":
    sys.exit(main())
