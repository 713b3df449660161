"""What the start of `interlock run` costs, for one server and for eight at once, beside the bare server.

`python -m bench.start [ROUNDS]`. The time is until the server's answer to `initialize`. Processor time and memory are
those of Interlock alone: its process and the reaper's, without strace and the server. RSS, that of the larger
process, counts shared pages whole, PSS in parts. Python's bytecode cache must be on, as it is after any installation.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench import proc
from bench.processes import Started, started
from bench.stdio import SERVER, Pipe

MANY = 8
ROUNDS = 5
OURS = ("proxy.cli", "process_reaper.py", "sandboxed_reaper.py")


@dataclass(frozen=True)
class Start:
    """One measurement; seconds and megabytes are per server."""

    cpu: float
    wall: float
    pss: float
    rss: float


def measure(argv: list[str], folder: Path, servers: int) -> Start:
    """Start so many servers at once, wait for the first answer of each, and look at their processes."""
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(started(f"start-{i}", argv, folder / str(i), pipes=True)) for i in range(servers)
        ]
        for one in running:
            Pipe(one)
        wall = time.perf_counter() - began
        looks = [_look(one) for one in running]
    return Start(
        cpu=statistics.mean(cpu for cpu, _, _ in looks),
        wall=wall,
        pss=statistics.mean(pss for _, pss, _ in looks),
        rss=statistics.mean(rss for _, _, rss in looks),
    )


def _look(one: Started) -> tuple[float, float, float]:
    """Return processor time, PSS and RSS of one start: all of the bare server, or Interlock's own processes."""
    used = proc.cpu_seconds(one.pid)
    own = [pid for pid in used if _is_ours(pid)] or [one.pid]
    return (
        sum(used[pid] for pid in own),
        sum(proc.memory(pid) for pid in own),
        max(proc.memory(pid, "Rss") for pid in own),
    )


def _is_ours(pid: int) -> bool:
    words = (proc.PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    # The server's own words follow in the same line; the first few are the interpreter's.
    return any(name in word for name in OURS for word in words[:4])


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = [sys.executable, "-m", "proxy.cli", "run", "--state-dir", str(folder / "state")]
        ways = {
            "bare server": SERVER,
            "interlock run --trace off": [*run, "--trace", "off", "--", *SERVER],
            "interlock run": [*run, "--", *SERVER],
        }
        measure(ways["interlock run"], folder, 1)  # compiles the detectors and parses the policy, once
        print(f"{'median of ' + str(rounds):28} servers  CPU s   until answer s   PSS MB   RSS MB")
        for servers in (1, MANY):
            for way, argv in ways.items():
                each = [measure(argv, folder, servers) for _ in range(rounds)]
                cpu, wall, pss, rss = (
                    statistics.median(getattr(one, field) for one in each) for field in vars(each[0])
                )
                print(f"{way:28} {servers:7} {cpu:6.2f} {wall:16.2f} {pss:8.1f} {rss:8.1f}")


if __name__ == "__main__":
    main()
