"""Plays made-up exchanges through a proxy with the fast lane and through one without: `python scripts/lane_fuzz.py`.

With `--jobs`, several processes do so at once, each with a pair of proxies and exchanges of its own. Prints every
exchange in which bytes forwarded, answer or record differ. Exits with 1 where a difference stays after three tries.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from proxy.system.event_loop import loop_factory  # noqa: E402
from tests.addons.lane.differential import Pair, compare, started_pair  # noqa: E402
from tests.addons.lane.exchanges import made_up, written  # noqa: E402
from tests.addons.lane.grammar import compare_chunks, compare_requests, compare_responses  # noqa: E402
from tests.addons.lane.scripted import ScriptedServer  # noqa: E402
from tests.support.harness import Certificates, make_certificates  # noqa: E402

ROUND = 1000
FRESH = 20_000
"""After so many exchanges both proxies are started anew: their records are read as a whole."""
AT_ONCE = 64
SEEDS = 10_000_000
"""The seeds of two jobs are so far apart that no exchange is made twice."""
_TOLD = re.compile(r"^(\d+) exchanges, (\d+) calls began in the lane, (\d+) differ, (\d+) once$", re.MULTILINE)


class Tally(NamedTuple):
    """What came of so many exchanges."""

    done: int = 0
    differing: int = 0
    late: int = 0
    in_lane: float = 0


async def fuzz(pair: Pair, certificates: Certificates, count: int, seed: int, so_far: Tally) -> Tally:
    """Play `count` exchanges; return what came of these and those before."""
    server = ScriptedServer(certificates)
    await server.start()
    hosts = [f"127.0.0.1:{port}" for port in server.ports]
    begun, tally = so_far.done, so_far
    batch = [] if begun else list(written(*hosts))
    while tally.done < begun + count:
        batch = batch or list(made_up(min(ROUND, begun + count - tally.done), seed + tally.done, *hosts, tally.done))
        stay, once = await compare(batch, pair, server, at_once=AT_ONCE)
        done, differing, late, _ = tally
        in_lane = so_far.in_lane + pair.lane_calls
        tally = Tally(done + len(batch), differing + len(stay), late + len(once) - len(stay), in_lane)
        batch = []
        print(*stay.values(), sep="\n", end="\n" if stay else "")
        print(
            f"{tally.done} exchanges, {tally.in_lane:.0f} calls began in the lane, {tally.differing} differ, "
            f"{tally.late} once",
            flush=True,
        )
    server.stop()
    return tally


def run(count: int, seed: int) -> Tally:
    """Play `count` exchanges, with new proxies every now and then."""
    tally = Tally()
    while tally.done < count:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            certificates = make_certificates(folder / "certificates")
            with (
                started_pair(folder, certificates) as pair,
                asyncio.Runner(loop_factory=loop_factory()) as runner,
            ):
                tally = runner.run(fuzz(pair, certificates, min(FRESH, count - tally.done), seed, tally))
    return tally


def run_jobs(jobs: int, count: int, seed: int) -> Tally:
    """Play `count` exchanges in so many processes; print what each says that differs, and the sums."""
    own = [sys.executable, __file__, "--count", str(count // jobs)]
    started = [
        subprocess.Popen([*own, "--seed", str(seed + job * SEEDS)], stdout=subprocess.PIPE, text=True)
        for job in range(jobs)
    ]
    sums = Tally()
    for process in started:
        said = process.communicate()[0]
        print(_TOLD.sub("", said).strip(), end="")
        told = _TOLD.findall(said)
        if process.returncode not in (0, 1) or not told:
            raise SystemExit(f"a job ended with {process.returncode} after {told[-1:] or 'nothing'}")
        sums = Tally(*(one + int(more) for one, more in zip(sums, told[-1], strict=True)))
    return sums


def main() -> None:
    """Fuzz, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=20_000, help="how many exchanges (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="how many processes play them (default: %(default)s)")
    parser.add_argument("--grammar", type=int, default=0, help="only the readers, with so many cases each, no sockets")
    given = parser.parse_args()
    if given.grammar:
        for compare_all in (compare_requests, compare_responses, compare_chunks):
            taken = compare_all(given.grammar, given.seed)
            print(f"{compare_all.__name__}: {given.grammar} cases, the lane took {taken}, none differs", flush=True)
        return
    if given.jobs > 1:
        tally = run_jobs(given.jobs, given.count, given.seed)
        print(
            f"{tally.done} exchanges, {tally.in_lane:.0f} calls began in the lane, {tally.differing} differ, "
            f"{tally.late} once"
        )
    else:
        tally = run(given.count, given.seed)
    sys.exit(1 if tally.differing else 0)


if __name__ == "__main__":
    main()
