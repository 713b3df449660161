"""Plays made-up exchanges through a proxy with the fast lane and through one without: `python scripts/lane_fuzz.py`.

Prints every exchange in which bytes forwarded, answer or record differ. Exits with 1 where a difference stays after
three tries.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.addons.lane.differential import Pair, compare, started_pair  # noqa: E402
from tests.addons.lane.exchanges import made_up, written  # noqa: E402
from tests.addons.lane.scripted import ScriptedServer  # noqa: E402
from tests.support.harness import Certificates, make_certificates  # noqa: E402

ROUND = 2000


async def fuzz(pair: Pair, certificates: Certificates, count: int, seed: int) -> int:
    """Play `count` exchanges; return how many differ."""
    server = ScriptedServer(certificates)
    await server.start()
    hosts = [f"127.0.0.1:{port}" for port in server.ports]
    differing, late, done = 0, 0, 0
    batch = list(written(*hosts))
    while batch:
        stay, once = await compare(batch, pair, server)
        done += len(batch)
        differing += len(stay)
        late += len(once) - len(stay)
        print(*stay.values(), sep="\n", end="\n" if stay else "")
        print(
            f"{done} exchanges, {pair.lane_calls:.0f} calls began in the lane, {differing} differ, {late} once",
            flush=True,
        )
        batch = list(made_up(min(ROUND, count - done), seed + done, *hosts, first=done)) if done < count else []
    server.stop()
    return differing


def main() -> None:
    """Fuzz, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="how many exchanges (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certificates = make_certificates(folder / "certificates")
        with started_pair(folder, certificates) as pair:
            differing = asyncio.run(fuzz(pair, certificates, given.count, given.seed))
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
