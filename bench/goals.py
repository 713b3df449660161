"""The goals, and whether a run met them: arithmetic on its results, and nothing else. Pure.

A goal has one or more parts, each a figure and its bound. It is met where all its parts are; not met where one of them
is not; and open (None) where a part was not measured and none failed. docs/performance.md says how figures are formed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Results = Mapping[str, Any]
"""What a run measured, by workload; the form of `workloads` in the results file."""

MEMORY_GROWTH = 0.10
"""Memory is flat over many calls where it ends within this share of what it was after the first tenth of them."""
DOWNLOAD_GROWTH_MB = 20.0
"""Memory is flat in a download of 200 MB where it never grows by more than a tenth of that."""
CALLS = 50_000


@dataclass(frozen=True)
class Part:
    """One figure of a goal and its bound."""

    name: str
    value: float | None
    bound: float
    at_least: bool = False
    unit: str = "×"

    @property
    def met(self) -> bool | None:
        """Whether the figure keeps the bound; None where there is no figure."""
        if self.value is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        value = "not measured" if self.value is None else f"{format_number(self.value)}{self.unit}"
        return f"{self.name} {value} ({sign} {self.bound:g}{self.unit})"


def format_number(value: float) -> str:
    """Write a number as briefly as it is known."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Goal:
    """A goal, what was measured for it, and whether it is met."""

    id: str
    goal: str
    parts: tuple[Part, ...]
    reason: str | None = None
    """Why it is open, where it is."""
    notes: dict[str, float] = field(default_factory=dict)
    """What belongs beside it and decides nothing."""

    @property
    def met(self) -> bool | None:
        """Whether it is met; None where that is not known."""
        found = [part.met for part in self.parts]
        if False in found:
            return False
        return None if None in found else True

    def as_json(self) -> dict[str, Any]:
        """Return the form of the results file."""
        measured = {part.name: None if part.value is None else round(part.value, 4) for part in self.parts}
        return {
            "id": self.id,
            "goal": self.goal,
            "measured": measured,
            "met": self.met,
            "text": "; ".join(map(str, self.parts)),
            **({"reason": self.reason} if self.reason and self.met is None else {}),
            **({"notes": self.notes} if self.notes else {}),
        }


def ratio(above: float | None, below: float | None) -> float | None:
    """Divide what is there."""
    return above / below if above is not None and below else None


def figure(results: Results, workload: str, contender: str, name: str) -> float | None:
    """Return one figure, or None."""
    found = results.get(workload, {}).get(contender, {}).get(name)
    return None if found is None else float(found)


def paired(results: Results, workload: str, above: str, below: str, name: str) -> float | None:
    """Return the median over the rounds of the ratio of two contenders, each round's turns being neighbours in time."""
    turns = [results.get(workload, {}).get(contender, {}).get("rounds", []) for contender in (above, below)]
    ratios = [ratio(one.get(name), other.get(name)) for one, other in zip(*turns, strict=False)]
    known = [value for value in ratios if value is not None]
    return statistics.median(known) if known else None


def throughput(results: Results) -> Goal:
    """Goal 1."""
    rate = paired(results, "tls-32", "interlock", "mitmdump", "rate")
    cpu, events, large = (
        paired(results, workload, "interlock", "mitmdump", "cpu_us")
        for workload in ("tls-32", "tls-sse-32", "tls-large-32")
    )
    return Goal(
        "1-throughput",
        "Everything on, CONNECT + TLS, 32 connections, beside stock mitmdump with no addon: ≥ 4.5× its throughput at "
        "≤ 0.20× its CPU a call; event streams ≤ 0.25×, 20 KB results ≤ 0.30×",
        (
            Part("throughput", rate, 4.5, at_least=True),
            Part("CPU a call", cpu, 0.20),
            Part("CPU a call, event streams", events, 0.25),
            Part("CPU a call, 20 KB results", large, 0.30),
        ),
    )


def gate_cost(results: Results) -> Goal:
    """Goal 2."""
    cpu = paired(results, "tls-32", "empty", "mitmdump", "cpu_us")
    bare = paired(results, "gate-parts", "recording", "empty", "cpu_us")
    return Goal(
        "2-gate-cost",
        "With an empty gate, a call costs ≤ 0.05× of stock mitmdump's CPU",
        (Part("CPU a call with an empty gate", cpu, 0.05),),
        notes={} if bare is None else {"with nothing but two bare events on disk": round(bare, 4)},
    )


def added_latency(results: Results) -> Goal:
    """Goal 3."""
    base = figure(results, "gateways", "direct", "p50_ms")

    def added(name: str) -> float | None:
        value = figure(results, "gateways", name, "p50_ms")
        return None if value is None or base is None else value - base

    own = added("interlock")
    notes = {f"{name} adds, ms": round(value, 3) for name in GATEWAYS if (value := added(name)) is not None}
    return Goal(
        "3-added-latency",
        "p50 added a call at 1 connection: ≤ 0.1× of what the FastMCP proxy adds, ≤ 0.05× of ContextForge",
        (
            Part("of FastMCP's", ratio(own, added("fastmcp")), 0.1),
            Part("of ContextForge's", ratio(own, added("contextforge")), 0.05),
        ),
        notes=notes,
    )


GATEWAYS = ("interlock", "fastmcp", "contextforge")


def workers(results: Results) -> Goal:
    """Goal 4. Capacity by CPU is calls in a second of processor time of the busiest process."""
    capacity = paired(results, "workers", "1 worker", "2 workers", "busiest_us")
    tail = paired(results, "workers", "2 workers", "1 worker", "p99_ms")
    return Goal(
        "4-workers",
        "Two workers: ≥ 1.8× capacity by CPU; p99 under 256 connections no worse than one worker's p99 at 128",
        (Part("capacity", capacity, 1.8, at_least=True), Part("p99 at 256 of one worker's at 128", tail, 1.0)),
    )


def connections_and_downloads(results: Results) -> Goal:
    """Goal 5."""
    cpu = paired(results, "new-connection", "interlock", "mitmdump", "cpu_us")
    speed = ratio(
        figure(results, "download", "interlock", "mb_per_second"),
        figure(results, "download", "mitmdump", "mb_per_second"),
    )
    growth = figure(results, "download", "interlock", "growth_mb")
    return Goal(
        "5-connections-downloads",
        "New TLS connection: ≤ 0.4× stock mitmdump's CPU. 200 MB download: flat memory, ≥ 1.5× stock throughput with "
        "streaming",
        (
            Part("CPU of a new connection", cpu, 0.4),
            Part("download", speed, 1.5, at_least=True),
            Part("memory grows by", growth, DOWNLOAD_GROWTH_MB, unit=" MB"),
        ),
    )


def memory(results: Results) -> Goal:
    """Goal 6. Flat over fewer calls than the goal speaks of says nothing of it, unless it is not flat."""
    found = results.get("memory", {})
    growth, calls = found.get("growth"), found.get("calls", 0.0)
    enough = growth is not None and (calls >= CALLS or growth > MEMORY_GROWTH)
    return Goal(
        "6-memory",
        "Memory: ≤ 120 MB a worker at rest, flat over 50 k calls",
        (
            Part("at rest", found.get("rest_mb"), 120.0, unit=" MB"),
            Part("growth", growth * 100 if enough else None, MEMORY_GROWTH * 100, unit=" %"),
        ),
        reason=f"{calls:.0f} calls are fewer than {CALLS}: growth {growth:.1%}" if growth is not None else None,
    )


def start(results: Results) -> Goal:
    """Goal 7."""
    found = results.get("start", {})
    notes = {
        f"{name}, s": round(found[f"{name}_s"], 2)
        for name in ("first", "first_cpu", "later_cpu", "mitmdump")
        if f"{name}_s" in found
    }
    return Goal(
        "7-start",
        "Start: listening in ≤ 1.5 s",
        (Part("listening", found.get("later_s"), 1.5, unit=" s"),),
        notes=notes,
    )


ALL: tuple[Callable[[Results], Goal], ...] = (
    throughput,
    gate_cost,
    added_latency,
    workers,
    connections_and_downloads,
    memory,
    start,
)
# The workloads that each goal is read from, for the reason why one is open.
SOURCES = {
    "1-throughput": ("tls-32", "tls-sse-32", "tls-large-32"),
    "2-gate-cost": ("tls-32",),
    "3-added-latency": ("gateways",),
    "4-workers": ("workers",),
    "5-connections-downloads": ("new-connection", "download"),
    "6-memory": ("memory",),
    "7-start": ("start",),
}


def judge(results: Results, left_out: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return every goal in the form of the results file, an open one with its reason."""
    judged = []
    for make in ALL:
        goal = make(results).as_json()
        if goal["met"] is None:
            why = [
                f"{name}: {reason}"
                for name, reason in left_out.items()
                if name.partition(":")[0] in SOURCES[goal["id"]]
            ]
            goal["reason"] = goal.get("reason") or "; ".join(why) or "not part of this run"
        judged.append(goal)
    return judged
