"""Two checkouts side by side, taking turns in one run: `python -m bench.compare OTHER_CHECKOUT`.

The other checkout needs a `.venv` of its own (`make setup` in it). Prints, for each workload, the median over the
rounds of this checkout's figure divided by the other's: under 1.00 is better for CPU and delay, over 1.00 for calls.
Both proxies are started anew for each round: two processes of one and the same checkout differ by up to 7 %, by how
their memory happens to be laid out.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from bench import goals, workloads
from bench.__main__ import WORK
from bench.contenders import Contender, Interlock, World
from bench.install import install
from bench.processes import end_cleanly
from bench.servers import servers

USUAL = ("tls-32", "new-connection", "plain-1", "plain-32", "large-32", "sse-32", "http2-32")
FIGURES = {"cpu_us": "CPU a call", "p50_ms": "p50", "rate": "calls a second"}


def main() -> None:
    """Compare, and print a line for each workload."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn")
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
            rounds: dict[str, list[dict[str, Any]]] = {"this": [], "other": []}
            for number in range(given.rounds):
                both = dataclasses.replace(workload, contenders=pair if number % 2 else pair[::-1])
                found = workloads.run(both, world, lambda _: None, given.seconds, 1)
                for name in found if len(found) == len(pair) else ():
                    rounds[name] += workloads.as_json(found[name])["rounds"]
            results = {workload.id: {name: {"rounds": taken} for name, taken in rounds.items()}}
            ratios = {what: goals.paired(results, workload.id, "this", "other", name) for name, what in FIGURES.items()}
            shown = ", ".join(f"{what} {ratio:.3f}×" for what, ratio in ratios.items() if ratio is not None)
            print(f"{workload.id:16} {shown or 'not measured'}", flush=True)
        for name, reason in world.left_out.items():
            print(f"left out: {name}: {reason}")


if __name__ == "__main__":
    main()
