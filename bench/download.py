"""A download of 200 MB that is not MCP: how fast it passes through the tunnel, and what it holds in memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench import proc
from bench.clients import LoadError, Sample, run_load, sampled
from bench.contenders import DIRECT, INTERLOCK, STREAMING, Running, World, all_started
from bench.load import Spec
from bench.processes import StartError
from bench.workloads import AUTHORITY, turns

LIMIT = 60.0
PATH = "/download.bin"


def one(world: World, running: Running) -> tuple[Sample, float]:
    """Download once; return what came of it, and the megabytes by which memory grew at most."""
    spec = Spec(
        port=running.port or world.servers.tls,
        authority=AUTHORITY.format(world.servers.tls),
        path=PATH,
        seconds=LIMIT,
        tunnel=running.tunnel,
        tls=True,
        download=True,
        calls=1,
    )
    pid = running.pid
    with sampled(lambda: sum(proc.tree_memory(pid).values()) if pid else 0.0) as seen:
        sample = run_load(spec, pid)
    return sample, max(seen) - seen[0]


def run(world: World, say: Callable[[str], None], rounds: int) -> dict[str, dict[str, float]]:
    """Download through each in turns, after once for warming up; return medians, and the largest growth."""
    with all_started(world, (DIRECT, STREAMING, INTERLOCK), "tls", "download") as running:
        names = list(running)
        samples: dict[str, list[tuple[Sample, float]]] = {name: [] for name in names}
        for number, name in enumerate(turns(names, rounds + 1)):
            say(f"download: {name}")
            try:
                sample = one(world, running[name])
            except (LoadError, StartError) as error:
                world.leave_out(f"download: {name}", str(error))
                continue
            if number >= len(names):
                samples[name].append(sample)
    return {
        name: {
            "mb_per_second": statistics.median(sample.megabytes / sample.seconds for sample, _ in taken),
            "growth_mb": max(growth for _, growth in taken),
            "cpu_ms": statistics.median((sample.cpu_us or 0.0) / 1000 for sample, _ in taken),
        }
        for name, taken in samples.items()
        if taken
    }
