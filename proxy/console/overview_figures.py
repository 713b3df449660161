"""Figures of an overview, from events of calls: counts over time, times, and what is most frequent. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.audit.call_event import CallEvent

TOP: Final = 8
DECISIONS: Final = ("allow", "propose", "deny")
PERCENTILES: Final = (50, 95, 99)
NO_RULE: Final = "no rule"


class Tally(defaultdict[str, float]):
    """Counts by name. An event of a sample counts for several, not always a whole number of them."""

    def __init__(self) -> None:
        super().__init__(float)


@dataclass(slots=True)
class Slice:
    """The calls of a short time. `times` are milliseconds, each with its weight."""

    start: float
    calls: Tally = field(default_factory=Tally)
    times: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def percentile(self, percent: int) -> float | None:
        return percentile(self.times, percent)


@dataclass(frozen=True, slots=True)
class Share:
    """How often something was found, and how often of these times it was denied."""

    name: str
    count: int
    denied: int = 0


@dataclass(slots=True)
class Figures:
    slices: list[Slice]
    sampled: bool = False
    calls: Tally = field(default_factory=Tally)
    times: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    rules: Tally = field(default_factory=Tally)
    masked: Tally = field(default_factory=Tally)
    errors: float = 0.0
    # Of tools, agents and servers: calls, and denied calls.
    named: dict[str, tuple[Tally, Tally]] = field(
        default_factory=lambda: {name: (Tally(), Tally()) for name in ("tool", "agent", "server")}
    )

    @property
    def total(self) -> int:
        return round(sum(self.calls.values()))

    @property
    def denied(self) -> int:
        return round(self.calls["deny"])

    @property
    def masks(self) -> int:
        return round(sum(self.masked.values()))

    def percentile(self, percent: int) -> float | None:
        return percentile(self.times, percent)

    def top(self, name: str) -> list[Share]:
        """Return the most frequent tools, agents or servers."""
        calls, denied = self.named[name]
        return [Share(one, round(count), round(denied[one])) for one, count in _most(calls)]

    def top_rules(self) -> list[Share]:
        return [Share(name, round(count), round(count)) for name, count in _most(self.rules)]

    def top_masks(self) -> list[Share]:
        return [Share(name, round(count)) for name, count in _most(self.masked)]


def figures(events: Iterable[CallEvent], starts: Sequence[float]) -> Figures:
    """Sum up events. `starts` has the start of each slice of time, and the end of the last one."""
    made = Figures([Slice(start) for start in starts[:-1]])
    width = starts[1] - starts[0]
    for event in events:
        number = math.floor((event.time - starts[0]) / width)
        if 0 <= number < len(made.slices):
            _add(made, made.slices[number], event)
    return made


def _add(made: Figures, part: Slice, event: CallEvent) -> None:
    weight = event.weight
    made.sampled |= weight > 1
    for detector in event.detectors:
        made.masked[detector] += weight
    if event.is_call:
        decision = event.decision if event.decision in DECISIONS else "deny"
        part.calls[decision] += weight
        made.calls[decision] += weight
        for name, (calls, denied) in made.named.items():
            value = getattr(event, name) or "(none)"
            calls[value] += weight
            if decision == "deny":
                denied[value] += weight
    if event.kind == "decided" and event.decision == "deny":
        made.rules[event.rule or event.reason or NO_RULE] += weight
    if event.kind == "completed" and event.total_ms is not None and event.method == "tools/call":
        part.times.append((event.total_ms, weight))
        made.times.append((event.total_ms, weight))
        made.errors += weight if event.is_error else 0.0


def percentile(times: Sequence[tuple[float, float]], percent: int) -> float | None:
    """Return the time that so many percent of the calls did not exceed; None where there are none."""
    ordered = sorted(times)
    wanted, passed = sum(weight for _, weight in ordered) * percent / 100, 0.0
    for time, weight in ordered:
        passed += weight
        if passed >= wanted - 1e-9:
            return time
    return ordered[-1][0] if ordered else None


def _most(tally: Tally) -> list[tuple[str, float]]:
    # By name where counts are equal: a page must not change its order from one look to the next.
    return sorted(tally.items(), key=lambda one: (-one[1], one[0]))[:TOP]
