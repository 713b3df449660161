"""The goals, and whether a run met them: arithmetic on its results, and nothing else. Pure.

A goal has one or more parts, each a figure and its bound. It is met where all its parts are; not met where one of them
is not; and open (None) where a part was not measured and none failed. docs/performance.md says how figures are formed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Results = Mapping[str, Any]
"""What a run measured, by workload; the form of `workloads` in the results file."""

MEMORY_GROWTH = 0.10
"""Memory is flat over many calls where it ends within this share of what it was after the first tenth of them."""
DOWNLOAD_GROWTH_MB = 20.0
"""Memory is flat in a download of 200 MB where it never grows by more than a tenth of that."""
CALLS = 500_000
BEFORE = 0.46
"""What a call cost with everything on before there was a lane, of stock mitmdump: the least of several runs."""


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
    on_stdio = ratio(added_on_stdio(results, "run"), added_on_stdio(results, "mcp-firewall"))
    notes = {f"{name} adds, ms": round(value, 3) for name in GATEWAYS if (value := added(name)) is not None}
    return Goal(
        "3-added-latency",
        "p50 added a call at 1 connection: ≤ 0.02× of what the FastMCP proxy adds, ≤ 0.015× of ContextForge; "
        "`interlock run` ≤ 0.5× of what mcp-firewall adds",
        (
            Part("of FastMCP's", ratio(own, added("fastmcp")), 0.02),
            Part("of ContextForge's", ratio(own, added("contextforge")), 0.015),
            Part("`run`, of mcp-firewall's", on_stdio, 0.5),
        ),
        notes=notes,
    )


GATEWAYS = ("interlock", "fastmcp", "contextforge")


def added_on_stdio(results: Results, way: str) -> float | None:
    """Return what a way to a stdio server adds to the median call, in ms."""
    base, value = (figure(results, "stdio", name, "p50_ms") for name in ("plain", way))
    return None if base is None or value is None else value - base


def part_figure(results: Results, part: str, name: str) -> float | None:
    """Return one figure of the benchmarks of single parts by its name; the largest where several begin with it."""
    found = [value for known, value in results.get(f"part {part}", {}).items() if known.startswith(name)]
    return max(found) if found else None


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


def memory_and_start(results: Results) -> Goal:
    """Goal 6. Flat over fewer calls than the goal speaks of says nothing of it, unless it is not flat."""
    found, started = results.get("memory", {}), results.get("start", {})
    growth, calls = found.get("growth"), found.get("calls", 0.0)
    enough = growth is not None and (calls >= CALLS or growth > MEMORY_GROWTH)
    notes = {
        f"{name}, s": round(started[f"{name}_s"], 2)
        for name in ("first", "first_cpu", "later_cpu", "mitmdump")
        if f"{name}_s" in started
    }
    return Goal(
        "6-memory-start",
        "≤ 90 MB a worker at rest, flat over 500 k calls; listening in ≤ 0.8 s",
        (
            Part("at rest", found.get("rest_mb"), 90.0, unit=" MB"),
            Part("growth", growth * 100 if enough else None, MEMORY_GROWTH * 100, unit=" %"),
            Part("listening", started.get("later_s"), 0.8, unit=" s"),
        ),
        reason=f"{calls:.0f} calls are fewer than {CALLS}: growth {growth:.1%}" if growth is not None else None,
        notes=notes,
    )


def masking(results: Results) -> Goal:
    """Goal 7."""
    return Goal(
        "7-masking",
        "Masking a secret in a 20 KB result ≤ 1.3× of the same without redaction; 1 MB of anything ≤ 0.5 s",
        (
            Part("a secret in 20 KB", paired(results, "redaction", "on", "off", "cpu_us"), 1.3),
            Part("the slowest 1 MB", part_figure(results, "redact", "mask 1 MB, adversarial"), 0.5, unit=" s"),
        ),
    )


def tracing_and_trail(results: Results) -> Goal:
    """Goal 8."""
    rate = "events shipped, median of the batches"
    acknowledged = "durable acknowledgements, 32 producers"
    return Goal(
        "8-tracing-trail",
        "Traced: a call that reads 1000 files ≤ 4× untraced, p50 of an echo ≤ 1.2×. Shipping ≥ 30 k events/s to "
        "Postgres; durable acknowledgements ≥ 12 k/s at 32 producers",
        (
            Part("1000 files, traced", _traced(results, "files"), 4.0),
            Part("echo, traced", _traced(results, "echo"), 1.2),
            Part("events shipped", part_figure(results, "events", rate), 30_000, at_least=True, unit=" a second"),
            Part("acknowledged", _exact(results, "audit", acknowledged), 12_000, at_least=True, unit=" a second"),
        ),
    )


def _traced(results: Results, what: str) -> float | None:
    """Return the worst ratio of traced to untraced over the servers that were measured."""
    end = f"traced beside untraced: {what}"
    found = [value for name, value in results.get("part trace", {}).items() if name.endswith(end)]
    return max(found) if found else None


def _exact(results: Results, part: str, name: str) -> float | None:
    found = results.get(f"part {part}", {}).get(name)
    return None if found is None else float(found)


def policy_size(results: Results) -> Goal:
    """Goal 9."""
    return Goal(
        "9-policy-size",
        "10,000 rules over 2,000 tools: ≤ 15 µs a decision. The `strict` profile, flows included: ≤ 1.25× of what "
        f"everything on cost before there was a lane ({BEFORE:g}× of stock mitmdump)",
        (
            Part("a decision", part_figure(results, "policy", "10000 rules over 2000 tools"), 15.0, unit=" µs"),
            Part(
                "strict, of everything on before",
                ratio(paired(results, "strict", "strict", "mitmdump", "cpu_us"), BEFORE),
                1.25,
            ),
        ),
    )


ALL: tuple[Callable[[Results], Goal], ...] = (
    throughput,
    gate_cost,
    added_latency,
    workers,
    connections_and_downloads,
    memory_and_start,
    masking,
    tracing_and_trail,
    policy_size,
)
# The workloads that each goal is read from, for the reason why one is open.
SOURCES = {
    "1-throughput": ("tls-32", "tls-sse-32", "tls-large-32"),
    "2-gate-cost": ("tls-32",),
    "3-added-latency": ("gateways", "stdio"),
    "4-workers": ("workers",),
    "5-connections-downloads": ("new-connection", "download"),
    "6-memory-start": ("memory", "start"),
    "7-masking": ("redaction", "part redact"),
    "8-tracing-trail": ("part trace", "part events", "part audit"),
    "9-policy-size": ("part policy", "strict"),
}
WORKLOADS = frozenset(name for names in SOURCES.values() for name in names if not name.startswith("part "))
PARTS = frozenset(name.removeprefix("part ") for names in SOURCES.values() for name in names) - WORKLOADS


def with_parts(results: Results, parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> Results:
    """Return results with the figures of single parts, by name, beside the workloads."""
    named = {f"part {part}": {each["name"]: each["value"] for each in figures} for part, figures in parts.items()}
    return {**results, **named}


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
