"""Break a proxy under load in every way that tests/faults knows, and count what is lost: about five minutes.

Exits 1 where anything acknowledged was lost or doubled, or a chain does not verify. `--minutes` sets the length.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults import scenes
from tests.support.postgres import DURABLE, Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.scenes import Counts

MINUTES = 5.0
# After a crash, one sync of the disk in place of one for every file there is.
CONFIGURATION = f"{DURABLE}recovery_init_sync_method = syncfs\n"
HEAD = ("acknowledged", "executed", "refused", "unanswered", "stored", "lost", "duplicated", "chain breaks", "seconds")


def main() -> int:
    """Play every scene and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="about how long it may take")
    scale = parser.parse_args().minutes / MINUTES
    print(f"{'':<32}" + "".join(f"{name:>14}" for name in HEAD), flush=True)
    postgres = Postgres(CONFIGURATION)
    try:
        with tempfile.TemporaryDirectory(prefix="interlock-faults-") as folder:
            played = [_play(play) for play in _scenes(Path(folder), postgres, scale)]
    finally:
        postgres.stop()
    bad = [counts.name for counts in played if not counts.good]
    print(f"FAILED: {', '.join(bad)}" if bad else "Nothing was lost, nothing doubled, every chain verifies.")
    return 1 if bad else 0


def _scenes(folder: Path, postgres: Postgres, scale: float) -> Iterator[Callable[[], Counts]]:
    """Return the scenes, each for its share of the time."""
    yield lambda: scenes.killed(folder / "killed", None, seconds=50 * scale, calls=200)
    yield lambda: scenes.killed(folder / "killed-pg", postgres.new_database(), seconds=50 * scale, calls=200)
    yield lambda: scenes.outage(folder / "outage", postgres, seconds=50 * scale, calls=300)
    yield lambda: scenes.cuts(folder / "cuts", postgres.new_database(), times=max(2, int(12 * scale)), calls=300)
    if scenes.can_mount(folder):
        yield lambda: scenes.disk_full(folder / "disk", times=max(1, int(10 * scale)), calls=100)
    else:
        print("disk full: left out, since only root can mount a small disk", flush=True)
    yield lambda: scenes.collector(folder / "collector", calls=max(50, int(300 * scale)))
    yield lambda: scenes.clock_jumps(folder / "clock", postgres.new_database(), calls=max(200, int(3000 * scale)))


def _play(play: Callable[[], Counts]) -> Counts:
    started = time.monotonic()
    counts = play()
    numbers = (
        counts.acknowledged, counts.executed, counts.refused, counts.unanswered, counts.stored, counts.lost,
        counts.duplicated, counts.chain_breaks, round(time.monotonic() - started),
    )  # fmt: skip
    print(f"{counts.name:<32}" + "".join(f"{number:>14}" for number in numbers) + f"  {counts.note}", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
