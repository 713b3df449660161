"""Two checkouts side by side, taking turns in one run: `python -m bench.compare OTHER_CHECKOUT`.

The other checkout needs a `.venv` of its own (`make setup` in it). Prints, for each workload, the median over the
starts of this checkout's figure divided by the other's: under 1.00 is better for CPU and delay, over 1.00 for calls.
Both proxies are started anew several times, since two processes of one and the same checkout differ by some percent,
by how their memory happens to be laid out. After each start they take short turns, so that a busy moment of the
machine falls on both.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import statistics
import tempfile
from pathlib import Path

from bench import workloads
from bench.__main__ import WORK
from bench.clients import Sample
from bench.contenders import Contender, Interlock, World
from bench.install import install
from bench.processes import end_cleanly
from bench.servers import servers

USUAL = ("tls-32", "new-connection", "plain-1", "plain-32", "large-32", "sse-32", "http2-32")
TURNS = 4


def total(turns: list[Sample]) -> dict[str, float]:
    """Return what all turns after one start gave together."""
    calls = sum(turn.calls for turn in turns)
    return {
        "CPU a call": sum((turn.cpu_us or 0.0) * turn.calls for turn in turns) / calls,
        "p50": statistics.median(turn.p50_ms for turn in turns),
        "calls a second": calls / sum(turn.seconds for turn in turns),
    }


def divide(above: dict[str, float], below: dict[str, float]) -> dict[str, float]:
    """Return the ratio of each figure."""
    return {name: above[name] / below[name] for name in above}


def describe(ratios: list[dict[str, float]]) -> str:
    """Write the median of each ratio, and between what it lay."""
    words = []
    for name in ratios[0] if ratios else ():
        taken = [each[name] for each in ratios]
        words.append(f"{name} {statistics.median(taken):.3f}× ({min(taken):.3f} to {max(taken):.3f})")
    return ", ".join(words) or "not measured"


def main() -> None:
    """Compare, and print a line for each workload."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn; each has four after each start")
    parser.add_argument("--only", nargs="+", default=USUAL, metavar="WORKLOAD")
    given = parser.parse_args()
    end_cleanly()
    pair = (
        Contender("this", "this checkout", Interlock("this")),
        Contender("other", "the other checkout", Interlock("other", checkout=given.other.resolve())),
    )
    WORK.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=WORK, ignore_cleanup_errors=True)))
        installed = install()
        world = World(stack.enter_context(servers(folder / "servers", installed)), folder, installed)
        stack.enter_context(world.stack)
        for workload in (each for each in workloads.WORKLOADS if each.id in given.only):
            ratios: list[dict[str, float]] = []
            for number in range(given.starts):
                both = dataclasses.replace(workload, contenders=pair if number % 2 else pair[::-1])
                found = workloads.run(both, world, lambda _: None, given.seconds, TURNS)
                if len(found) == len(pair):
                    ratios.append(divide(total(found["this"].rounds), total(found["other"].rounds)))
            print(f"{workload.id:16} {describe(ratios)}", flush=True)
        for name, reason in world.left_out.items():
            print(f"left out: {name}: {reason}")


if __name__ == "__main__":
    main()
