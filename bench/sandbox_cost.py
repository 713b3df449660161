"""What `run`, traced, sandboxed and both cost beside the bare server, in one run: starts, then calls.

`python -m bench.sandbox_cost [ROUNDS]`. A start is the time until the filesystem server's answer to `initialize`; a
call is one of a server that answers at once. Ways take turns, so that what else the machine does meets all of them.
Processor time is that of all processes of a start, the server's too, to their end: a busy machine changes it least.
"""

from __future__ import annotations

import contextlib
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import started
from bench.sandbox_compare import FILES
from bench.stdio import LIMIT, OBSERVED, SERVER, WARM, Pipe
from tests.support.node_tools import NODE

ROUNDS = 9
CALLS = 300
FLAGS: dict[str, list[str] | None] = {
    "bare": None,
    "run": ["--trace", "off"],
    "run, traced": ["--trace", "require"],
    "run --sandbox": ["--trace", "off", "--sandbox=require"],
    "run --sandbox, traced": ["--trace", "require", "--sandbox=require"],
}
ALLOW = "version: 1\ndefault: allow\n"


def commands(server: list[str], folder: Path) -> dict[str, list[str]]:
    """Return the command of every way to run a server."""
    policy, ruled = folder / "policy.yaml", folder / "observed.yaml"
    policy.write_text(ALLOW)
    ruled.write_text(OBSERVED + "default: allow\n")
    run = [sys.executable, "-m", "proxy.cli", "run", "--state-dir", str(folder / "state"), "--policy"]
    found = {
        way: server if flags is None else [*run, str(policy), *flags, "--", *server] for way, flags in FLAGS.items()
    }
    return found | {"run, traced, `on: observed`": [*run, str(ruled), "--trace", "require", "--", *server]}


def start_once(argv: list[str], folder: Path) -> tuple[float, float]:
    """Start a server; return the milliseconds until its first answer, and those of processor time until its end."""
    used, began = _used(), time.perf_counter()
    with started("cost", argv, folder, pipes=True) as server:
        Pipe(server)
        took = (time.perf_counter() - began) * 1000
        assert server.process.stdin
        server.process.stdin.close()
        server.process.wait(LIMIT)  # so that it waits for its own processes, and theirs are counted
    return took, (_used() - used) * 1000


def _used() -> float:
    counted = resource.getrusage(resource.RUSAGE_CHILDREN)
    return counted.ru_utime + counted.ru_stime


def starts(ways: dict[str, list[str]], folder: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the medians of starts: until the first answer, and processor time."""
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way, argv in ways.items():
            took = start_once(argv, folder)
            if turn:  # the first start of each warms caches
                taken[way].append(took)
    return {way: (_median(each, 0), _median(each, 1)) for way, each in taken.items()}


def _median(taken: list[tuple[float, float]], which: int) -> float:
    return statistics.median(each[which] for each in taken)


def calls(ways: dict[str, list[str]], folder: Path) -> dict[str, float]:
    """Return the median of calls, one of each way after another."""
    taken: dict[str, list[float]] = {way: [] for way in ways}
    with contextlib.ExitStack() as stack:
        pipes = {
            way: Pipe(stack.enter_context(started("cost", argv, folder / str(number), pipes=True)))
            for number, (way, argv) in enumerate(ways.items())
        }
        for turn in range(CALLS + WARM):
            for way, pipe in pipes.items():
                took = pipe.call()
                if turn >= WARM:
                    taken[way].append(took)
    return {way: statistics.median(each) for way, each in taken.items()}


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as name:
        folder, shared = Path(name), Path(name) / "shared"
        shared.mkdir()
        first = starts(commands([str(NODE.resolve()), str(FILES.resolve()), str(shared)], folder), folder, rounds)
        each = calls(commands(SERVER, folder), folder)
    print(f"| | first answer, ms (median of {rounds}) | processor time, ms | a call, ms (median of {CALLS}) |")
    print("|---|---|---|---|")
    for way, (start, used) in first.items():
        print(f"| {way} | {start:.0f} | {used:.0f} | {each[way]:.2f} |")


if __name__ == "__main__":
    main()
