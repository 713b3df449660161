"""The plan of a run: what is measured, in which order, and for how long. One job that fails takes no other with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench import download, figures, gateways, goals, lifetime, stdio, workloads
from bench.contenders import World
from bench.workloads import Workload

QUICK_SECONDS, QUICK_ROUNDS = 1.5, 2
TITLES = {
    **{workload.id: workload.title for workload in workloads.WORKLOADS},
    "gateways": "MCP gateways, one call after the other on one connection",
    "stdio": "stdio, one call after the other",
    "download": "a download of 200 MB through CONNECT and TLS",
    "start": "seconds until it listens",
    "memory": "memory of one worker, MB",
}
Say = Callable[[str], None]
"""Tells how far the run is."""


@dataclass(frozen=True)
class Options:
    """How much to measure."""

    quick: bool = False
    only: tuple[str, ...] = ()
    seconds: float | None = None
    rounds: int | None = None
    parts: bool = True
    calls: int = goals.CALLS
    """Over how many calls memory is watched."""

    @property
    def kind(self) -> str:
        """What such a run is called."""
        return "quick" if self.quick else "partial" if self.only else "full"

    def wants(self, name: str, *, in_quick: bool) -> bool:
        """Return whether something is part of the run."""
        return name in self.only if self.only else in_quick or not self.quick


@dataclass(frozen=True)
class Job:
    """Something to measure by itself."""

    name: str
    measure: Callable[[], dict[str, Any]]
    in_quick: bool = True
    keeps: bool = False
    """Whether the contenders that stay up may serve the next one, too."""


def _load(workload: Workload, world: World, options: Options, say: Say) -> dict[str, Any]:
    seconds, rounds = workload.seconds, workload.rounds
    if options.quick:
        least = workload.connections / 100  # many connections wait long for their turn, and the tail is of interest
        seconds, rounds = min(max(QUICK_SECONDS, least), seconds), min(QUICK_ROUNDS, rounds)
    found = workloads.run(workload, world, say, options.seconds or seconds, options.rounds or rounds)
    return {name: workloads.as_json(each) for name, each in found.items()}


def jobs(world: World, options: Options, say: Say) -> Iterator[Job]:
    """Return everything there is to measure."""
    for workload in workloads.WORKLOADS:
        yield Job(
            workload.id,
            lambda workload=workload: _load(workload, world, options, say),  # type: ignore[misc]
            in_quick=workload.in_quick,
            keeps=True,
        )
    quick, rounds = options.quick, options.rounds or (2 if options.quick else 3)
    yield Job("download", lambda: download.run(world, say, 1 if quick else rounds), keeps=True)
    yield Job("gateways", lambda: gateways.run(world, say, 25 if quick else 60, rounds))
    yield Job("stdio", lambda: stdio.run(world, say, 100 if quick else 300, rounds), in_quick=False)
    yield Job("start", lambda: dict(lifetime.start_times(world, say, 1 if quick else rounds)))
    yield Job("memory", lambda: dict(lifetime.memory(world, say, 3_000 if quick else options.calls)))


def measure(world: World, options: Options, say: Say, found: dict[str, Any]) -> None:
    """Measure everything that is wanted, into `found`; what fails is left out with the reason."""
    for job in jobs(world, options, say):
        if not job.keeps:
            world.end_kept()
        if options.wants(job.name, in_quick=job.in_quick):
            try:
                found[job.name] = job.measure()
            except Exception as error:  # noqa: BLE001  an unattended run goes on, and tells
                world.leave_out(job.name, f"{type(error).__name__}: {error}")
    world.end_kept()


def measure_parts(world: World, options: Options, say: Say, found: dict[str, list[dict[str, Any]]]) -> None:
    """Run the benchmarks of single parts, briefly, into `found`; a quick run has those that take seconds."""
    wanted = figures.QUICK if options.quick else figures.IN_A_RUN
    for name in (name for name in wanted if not options.only or name in goals.PARTS):
        say(f"part {name}")
        measured, problem = figures.collect(name, world.folder, quick=True)
        found[name] = [dataclasses.asdict(figure) for figure in measured]
        if problem:
            world.leave_out(f"part {name}", problem)
