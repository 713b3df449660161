"""How long Interlock takes to listen, and what it holds in memory: at rest, and over many calls."""

from __future__ import annotations

import contextlib
import shutil
import statistics
from collections.abc import Callable

from bench import proc
from bench.clients import LoadError, run_load, sampled
from bench.contenders import MITMDUMP, Interlock, World
from bench.load import Spec
from bench.processes import StartError, free_port, listening, started, wait_until
from bench.workloads import AUTHORITY

LIMIT = 600.0
"""Seconds after which a run of many calls ends with those that it has made."""
WARM_SHARE = 0.1
"""The share of the calls after which memory is taken to have its size."""


def _start_once(world: World, name: str) -> tuple[float, float]:
    """Start Interlock with everything on; the seconds until it takes connections, and those of processor time."""
    folder = world.folder / name
    port = free_port()
    interlock = Interlock(name)
    argv = [*interlock.command(world, "tls", folder), "--listen", f"127.0.0.1:{port}"]
    with started(name, argv, folder) as server:
        took = wait_until(server, lambda: listening(port))
        return took, sum(proc.cpu_seconds(server.pid).values())


def start_times(world: World, say: Callable[[str], None], rounds: int) -> dict[str, float]:
    """Return the seconds to listening: of the first start of all, of later ones, and of mitmdump."""
    first: list[float] = []
    first_cpu: list[float] = []
    later: list[float] = []
    later_cpu: list[float] = []
    stock: list[float] = []
    for number in range(rounds):
        say(f"start: {number + 1}")
        try:
            shutil.rmtree(world.folder / "start", ignore_errors=True)
            for walls, cpus in ((first, first_cpu), (later, later_cpu)):
                wall, used = _start_once(world, "start")
                walls.append(wall)
                cpus.append(used)
        except StartError as error:
            world.leave_out("start", str(error))
        with contextlib.suppress(StartError):
            stock.append(_stock_start(world))
    figures = {"first": first, "first_cpu": first_cpu, "later": later, "later_cpu": later_cpu, "mitmdump": stock}
    return {f"{name}_s": statistics.median(times) for name, times in figures.items() if times}


def _stock_start(world: World) -> float:
    import time  # noqa: PLC0415

    began = time.perf_counter()
    with MITMDUMP.start(world, "tls"):
        return time.perf_counter() - began


def memory(world: World, say: Callable[[str], None], calls: int) -> dict[str, float]:
    """Return the megabytes of a worker at rest, and how they grow over so many calls."""
    try:
        with Interlock("memory")(world, "plain") as running:
            assert running.pid
            pid = running.pid
            rest = proc.tree_memory(pid)
            spec = Spec(
                port=running.port,
                authority=AUTHORITY.format(world.servers.plain),
                path="/small.json",
                connections=32,
                seconds=LIMIT,
                calls=calls,
            )
            say(f"memory: {calls} calls")
            with sampled(lambda: sum(proc.tree_memory(pid).values()), every=0.5) as seen:
                sample = run_load(spec, pid)
    except (StartError, LoadError) as error:
        world.leave_out("memory", str(error))
        return {}
    settled = seen[max(1, int(len(seen) * WARM_SHARE))]
    return {
        "rest_mb": sum(rest.values()),
        "largest_process_mb": max(rest.values()),
        "settled_mb": settled,
        "end_mb": seen[-1],
        "calls": float(sample.calls),
        "growth": seen[-1] / settled - 1,
    }
