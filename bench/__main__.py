"""`python -m bench`: every workload and every competitor in one run; prints tables, writes bench/results.

python -m bench                      # about 20 minutes, 4 of them for the 500,000 calls of goal 6; `make bench`
python -m bench --quick              # under 2 minutes; fills the goals it can; `make bench-quick`
python -m bench --goals              # what the goals are read from, at full length: about 12 minutes
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

from bench import goals, proc, report
from bench.contenders import PACKAGES, World
from bench.install import HERE, Installed, find_program, install
from bench.plan import TITLES, Options, measure, measure_parts
from bench.processes import ROOT, end_cleanly
from bench.servers import servers

WORK = HERE / ".work"


def read_options(words: list[str] | None = None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(TITLES)
    parser.add_argument("--quick", action="store_true", help="short turns, and only what goals need")
    parser.add_argument("--only", nargs="+", default=[], choices=known, metavar="WORKLOAD", help=", ".join(known))
    parser.add_argument("--goals", action="store_true", help="only what the goals are read from")
    parser.add_argument("--seconds", type=float, help="how long a turn takes, instead of what each workload says")
    parser.add_argument("--rounds", type=int, help="how many turns each contender gets")
    parser.add_argument("--calls", type=int, default=goals.CALLS, help="over how many calls memory has to be flat")
    parser.add_argument("--no-parts", action="store_true", help="without the benchmarks of single parts")
    given = parser.parse_args(words)
    parts = not (given.only or given.no_parts)
    only = [*given.only, *(sorted(goals.WORKLOADS) if given.goals else ())]
    return Options(given.quick, tuple(only), given.seconds, given.rounds, parts, given.calls)


def versions(installed: Installed) -> dict[str, str]:
    """Return the versions of what was compared."""
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
    """Return the commit that is measured, and whether there is more than it."""
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
    """Return what says how far the run is: on one line of a terminal, or a line a workload."""
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
    """Do a run; return its results, which are of what was measured so far where somebody ends it."""
    began, machine, kind = time.perf_counter(), proc.machine(), options.kind
    found: dict[str, Any] = {}
    parts: dict[str, list[dict[str, Any]]] = {}
    if machine.load_before > machine.cores / 2:
        console.print(f"[yellow]the machine is busy (load {machine.load_before}): trust ratios, not numbers[/yellow]")
    WORK.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        say = stack.enter_context(progress(console, began))
        say("install what is compared")
        installed = install()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=WORK, ignore_cleanup_errors=True)))
        upstream = stack.enter_context(servers(folder / "servers", installed))
        world = World(upstream, folder, installed)
        stack.enter_context(world.stack)
        for name, reason in installed.missing.items():
            world.leave_out(name, reason)
        try:
            measure(world, options, say, found)
            if options.parts:
                measure_parts(world, options, say, parts)
        except (KeyboardInterrupt, SystemExit):
            kind = "partial"
            world.leave_out("the rest", "the run was ended")
    return {
        "kind": kind,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - began, 1),
        "commit": commit(),
        "machine": dataclasses.asdict(machine),
        "versions": versions(installed),
        "goals": goals.judge(goals.with_parts(found, parts), world.left_out),
        "workloads": found,
        "parts": parts,
        "titles": TITLES,
        "left_out": world.left_out,
    }


def main() -> None:
    """Do a run, print it and write it down."""
    end_cleanly()
    options = read_options()
    console = Console() if sys.stdout.isatty() else Console(width=150)
    results = run(options, console)
    report.show(results, console)
    written = write(results)
    if results["kind"] == "full":
        report.write_docs()
        written += [report.PAGE, report.CHART]
    console.print("written: " + ", ".join(str(path.relative_to(ROOT)) for path in written), soft_wrap=True)
    sys.exit(130 if "the rest" in results["left_out"] else 0)


if __name__ == "__main__":
    main()
