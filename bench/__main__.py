"""`python -m bench`: every workload and every competitor in one run; prints tables, writes bench/results.

python -m bench                      # about 10 minutes; `make bench`
python -m bench --quick              # under 2 minutes; fills the goals it can; `make bench-quick`
python -m bench --only tls-32 start  # some workloads
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime as dt
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import download, figures, gateways, goals, lifetime, proc, report, stdio, workloads
from bench.contenders import PACKAGES, World
from bench.install import HERE, Installed, find_program, install
from bench.processes import ROOT, end_cleanly
from bench.servers import servers

WORK = HERE / ".work"
QUICK_SECONDS, QUICK_ROUNDS = 2.0, 2
TITLES = {
    "gateways": "MCP gateways, one call after the other on one connection",
    "stdio": "stdio, one call after the other",
    "download": "a download of 200 MB through CONNECT and TLS",
    "start": "seconds until it listens",
    "memory": "memory of one worker, MB",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How long to measure."""

    quick: bool
    only: tuple[str, ...]
    seconds: float | None
    rounds: int | None
    parts: bool

    def wants(self, name: str, *, in_quick: bool = True) -> bool:
        """Say whether something is part of this run."""
        return name in self.only if self.only else in_quick or not self.quick


def read_options(words: list[str] | None = None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*(workload.id for workload in workloads.WORKLOADS), *TITLES]
    parser.add_argument("--quick", action="store_true", help="short turns, and only what goals need")
    parser.add_argument("--only", nargs="+", default=[], choices=known, metavar="WORKLOAD", help=", ".join(known))
    parser.add_argument("--seconds", type=float, help="how long a turn takes, instead of what each workload says")
    parser.add_argument("--rounds", type=int, help="how many turns each contender gets")
    parser.add_argument("--no-parts", action="store_true", help="without the benchmarks of single parts")
    given = parser.parse_args(words)
    parts = not (given.quick or given.only or given.no_parts)
    return Options(given.quick, tuple(given.only), given.seconds, given.rounds, parts)


def measure(world: World, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure everything that is wanted; give the results by workload."""
    found: dict[str, Any] = {}
    quick = options.quick
    for workload in workloads.WORKLOADS:
        if options.wants(workload.id, in_quick=workload.in_quick):
            seconds = options.seconds or (min(QUICK_SECONDS, workload.seconds) if quick else workload.seconds)
            rounds = options.rounds or (min(QUICK_ROUNDS, workload.rounds) if quick else workload.rounds)
            figures_of = workloads.run(workload, world, say, seconds, rounds)
            found[workload.id] = {name: workloads.as_json(each) for name, each in figures_of.items()}
    rounds = options.rounds or (2 if quick else 3)
    others: dict[str, Callable[[], dict[str, Any]]] = {
        "gateways": lambda: gateways.run(world, say, 25 if quick else 60, rounds),
        "stdio": lambda: stdio.run(world, say, 100 if quick else 300, rounds),
        "download": lambda: download.run(world, say, 1 if quick else rounds),
        "start": lambda: lifetime.start_times(world, say, rounds),
        "memory": lambda: lifetime.memory(world, say, 3_000 if quick else goals.CALLS),
    }
    world.stack.close()
    world.kept.clear()
    for name, run in others.items():
        if options.wants(name):
            found[name] = run()
            world.stack.close()
            world.kept.clear()
    return found


def measure_parts(world: World, say: Callable[[str], None]) -> dict[str, list[dict[str, Any]]]:
    """Run the benchmarks of single parts, briefly."""
    found = {}
    for name in figures.PARTS:
        say(f"part: {name}")
        measured, problem = figures.collect(name, world.folder, quick=True)
        found[name] = [dataclasses.asdict(figure) for figure in measured]
        if problem:
            world.leave_out(f"part {name}", problem)
    return found


def versions(installed: Installed) -> dict[str, str]:
    """Give the versions of what was compared."""
    found = {"Interlock": importlib.metadata.version("mcp-interlock")}
    for package in PACKAGES.values():
        if package.name != "tools" and installed.reason(package.name) is None:
            found[package.name] = package.requirement.rpartition("==")[2]
    for program, flag in (("nginx", "-v"), ("wrk", "-v")):
        if path := find_program(program):
            done = subprocess.run([path, flag], capture_output=True, text=True, check=False, timeout=10)
            said = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
            found[program] = said[0] if said else "unknown"
    return found


def commit() -> str:
    """Give the commit that is measured, and whether there is more than it."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        git = ["git", "-C", str(ROOT)]
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
        paths = ["--", "proxy", "addons", "bench/*.py", "pyproject.toml"]
        changed = subprocess.run([*git, "status", "--porcelain", *paths], capture_output=True, text=True, check=True)
        return head.stdout.strip() + (" with changes" if changed.stdout.strip() else "")
    return "unknown"


def write(results: dict[str, Any]) -> list[Path]:
    """Write the results: `latest.json`, `full.json` for a whole run, and one that nothing writes over.

    A run of some workloads leaves the first two alone.
    """
    report.RESULTS.mkdir(exist_ok=True)
    runs = report.RESULTS / "runs"
    runs.mkdir(exist_ok=True)
    stamp = re.sub(r"\W", "", results["date"])
    written = [runs / f"{stamp}-{results['kind']}.json"]
    written += {"partial": [], "quick": [report.LATEST], "full": [report.LATEST, report.FULL]}[results["kind"]]
    for path in written:
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return written


@contextlib.contextmanager
def progress(console: Console, began: float) -> Iterator[Callable[[str], None]]:
    """Give what says how far the run is: on one line of a terminal, or a line a workload."""
    told: set[str] = set()
    with console.status("") as status:

        def say(what: str) -> None:
            text, workload = f"{time.perf_counter() - began:4.0f} s  {what}", what.partition(":")[0]
            status.update(text)
            if not console.is_terminal and workload not in told:
                told.add(workload)
                console.print(text, markup=False)

        yield say


def run(options: Options, console: Console) -> dict[str, Any]:
    """Do a run; give its results."""
    began, machine = time.perf_counter(), proc.machine()
    if machine.load_before > machine.cores / 2:
        console.print(f"[yellow]the machine is busy (load {machine.load_before}): trust ratios, not numbers[/yellow]")
    WORK.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        say = stack.enter_context(progress(console, began))
        say("install what is compared")
        installed = install()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=WORK, ignore_cleanup_errors=True)))
        upstream = stack.enter_context(servers(folder / "servers", installed))
        world = World(upstream, folder, installed, quick=options.quick)
        stack.enter_context(world.stack)
        for name, reason in installed.missing.items():
            world.leave_out(name, reason)
        found = measure(world, options, say)
        parts = measure_parts(world, say) if options.parts else {}
    return {
        "kind": "quick" if options.quick else "partial" if options.only else "full",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - began, 1),
        "commit": commit(),
        "machine": dataclasses.asdict(machine),
        "versions": versions(installed),
        "goals": goals.judge(found, world.left_out),
        "workloads": found,
        "parts": parts,
        "titles": {**{workload.id: workload.title for workload in workloads.WORKLOADS}, **TITLES},
        "left_out": world.left_out,
    }


def main() -> None:
    """Do a run, print it and write it down."""
    end_cleanly()
    options = read_options()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    try:
        results = run(options, console)
    except KeyboardInterrupt:
        console.print("interrupted; nothing was written")
        sys.exit(130)
    report.show(results, console)
    written = write(results)
    if results["kind"] == "full":
        report.write_docs()
        written += [report.PAGE, report.CHART]
    console.print("written: " + ", ".join(str(path.relative_to(ROOT)) for path in written), soft_wrap=True)


if __name__ == "__main__":
    main()
