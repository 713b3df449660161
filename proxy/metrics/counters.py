"""What is counted while the proxy works: numbers in memory that its processes share, made before they are forked.

Each worker writes a row of its own, so nobody waits for anybody; a reader adds the rows up. The rows outlive the
workers: one that takes another's place goes on counting where that one stopped. What is counted is taken from the audit
events, as they are recorded. Labels are from lists that are known before the first call: an agent cannot make new ones.
"""

from __future__ import annotations

import bisect
import mmap
import threading
import time
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from proxy.core.reasons import REASONS
from proxy.redact import builtin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from proxy.core.model import AuditEvent

OTHER: Final = "other"
CALLS: Final = "interlock_calls_total"
OUTCOMES: Final = "interlock_outcomes_total"
REFUSED: Final = "interlock_refused_total"
REDACTIONS: Final = "interlock_redactions_total"
GATE: Final = "interlock_gate_seconds"
UPSTREAM: Final = "interlock_upstream_seconds"
AUDIT_WRITE: Final = "interlock_audit_write_seconds"
CONNECTIONS: Final = "interlock_connections"
ACCEPTED: Final = "interlock_connections_total"
UNDER_WAY: Final = "interlock_calls_under_way"
STREAMS: Final = "interlock_event_streams"

BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DECISIONS: Final = ("allow", "deny", "propose")
_GRANTED: Final = (
    *("policy_allowed", "default_allow", "proposal_allowed", "proposal_pending", "proposal_rejected"),
    *("proposal_blocked", "proposal_not_required", "proposal_committed"),
)
_KINDS: Final = ("request_refused", "connection_refused", "operator_refused")
_OUTCOMES: Final = (
    *("done", "tool_error", "error", "input_required", "task", "withheld", "unreadable", "upstream_error"),
    *("interrupted", "unknown", "http_4xx", "http_5xx"),
)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its kind, what it is, its labels and their values, and where its numbers stand in a row."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    places: Mapping[tuple[str, ...], int]


class _Layout:
    """Gives every number its place."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.size = 0

    def add(self, name: str, kind: str, text: str, labels: Mapping[str, Iterable[str]] | None = None) -> None:
        assert kind != "histogram" or not labels
        values = [(*dict.fromkeys((*each, OTHER)),) for each in (labels or {}).values()]
        places = {pair: self.size + place for place, pair in enumerate(product(*values))}
        self.families[name] = Family(name, kind, text, tuple(labels or ()), places)
        self.size += len(places) * (len(BUCKETS) + 2 if kind == "histogram" else 1)


def _lay_out() -> _Layout:
    layout = _Layout()
    reasons = (*REASONS, *_GRANTED)
    layout.add(CALLS, "counter", "Messages decided on.", {"decision": _DECISIONS, "reason": reasons})
    layout.add(OUTCOMES, "counter", "Calls that were forwarded, by how they ended.", {"outcome": _OUTCOMES})
    layout.add(REFUSED, "counter", "What was refused outside any call.", {"kind": _KINDS, "reason": REASONS})
    detectors = (*(detector.id for detector in builtin().detectors), "custom")
    layout.add(REDACTIONS, "counter", "Secrets and personal data found, by detector.", {"detector": detectors})
    layout.add(GATE, "histogram", "Seconds from a message's arrival to the decision on it.")
    layout.add(UPSTREAM, "histogram", "Seconds from forwarding a call to its answer.")
    layout.add(AUDIT_WRITE, "histogram", "Seconds that a call waited for its event to be on disk.")
    layout.add(ACCEPTED, "counter", "Client connections accepted.")
    layout.add(CONNECTIONS, "gauge", "Client connections open now.")
    layout.add(UNDER_WAY, "gauge", "Calls forwarded and not answered yet.")
    layout.add(STREAMS, "gauge", "Event streams open now.")
    return layout


class Counters:
    """The numbers of so many workers. Make it before the fork; each worker then takes its `row`."""

    def __init__(self, workers: int) -> None:
        self._layout = _lay_out()
        self._memory = memoryview(mmap.mmap(-1, 8 * workers * self._layout.size)).cast("d")
        self._beats = memoryview(mmap.mmap(-1, 8 * workers)).cast("d")
        self._rows = [WorkerCounters(self, number) for number in range(workers)]

    @property
    def families(self) -> Iterable[Family]:
        """Every metric there is."""
        return self._layout.families.values()

    def row(self, worker: int) -> WorkerCounters:
        """Return the row of a worker, which are numbered from 1."""
        return self._rows[worker - 1]

    def numbers(self, worker: int) -> memoryview[float]:
        """Return the numbers of one row."""
        return self._memory[worker * self._layout.size : (worker + 1) * self._layout.size]

    def beat(self, worker: int) -> None:
        """Note that a worker, from 1, is alive now."""
        self._beats[worker - 1] = time.monotonic()

    def silence(self, worker: int) -> float:
        """Return for how many seconds a worker, from 1, has shown no sign of life."""
        return time.monotonic() - self._beats[worker - 1]

    def family(self, name: str) -> Family:
        """Return a metric by its name."""
        return self._layout.families[name]

    def total(self, place: int) -> float:
        """Add one number up over all workers."""
        return sum(self._memory[place :: self._layout.size])

    def sums(self) -> Iterator[tuple[Family, tuple[str, ...], Sequence[float]]]:
        """Return every metric with its labels and its number; for a histogram its buckets, the rest, and the sum."""
        width = len(BUCKETS) + 2
        for family in self.families:
            for values, place in family.places.items():
                count = width if family.kind == "histogram" else 1
                yield family, values, [self.total(place + more) for more in range(count)]


class WorkerCounters:
    """The numbers of one worker. Safe for its threads."""

    def __init__(self, counters: Counters, number: int) -> None:
        self._counters = counters
        self._number = number
        self._numbers = counters.numbers(number)
        self._total = counters.total
        self._lock = threading.Lock()
        families = {family.name: family.places for family in counters.families}
        self._calls, self._outcomes = families[CALLS], families[OUTCOMES]
        self._refused, self._redactions = families[REFUSED], families[REDACTIONS]
        self._single = {name: places[()] for name, places in families.items() if () in places}

    def begin(self) -> None:
        """Forget what a worker that is gone had open."""
        for name in (CONNECTIONS, UNDER_WAY, STREAMS):
            self.set(name, 0)
        self.beat()

    def beat(self) -> None:
        """Show a sign of life."""
        self._counters.beat(self._number + 1)

    def set(self, name: str, value: float) -> None:
        """Say what a gauge shows now."""
        self._numbers[self._single[name]] = value

    def add(self, name: str) -> None:
        """Count one."""
        with self._lock:
            self._numbers[self._single[name]] += 1

    def in_all(self, name: str) -> float:
        """Return a number of all workers together."""
        return self._total(self._single[name])

    def time(self, name: str, seconds: float) -> None:
        """Take a time into a histogram."""
        with self._lock:
            self._time(name, seconds)

    def count(self, event: AuditEvent) -> None:
        """Take an event into account."""
        with self._lock:
            if event.kind == "decided":
                _bump(self._numbers, self._calls, event.decision or OTHER, event.reason or OTHER)
                if event.gate_ms is not None:
                    self._time(GATE, event.gate_ms / 1000)
            elif event.kind == "completed":
                _bump(self._numbers, self._outcomes, _outcome(event.outcome))
                if event.upstream_ms is not None:
                    self._time(UPSTREAM, event.upstream_ms / 1000)
            elif event.kind.endswith("_refused"):
                _bump(self._numbers, self._refused, event.kind, event.reason or OTHER)
            for finding in event.redactions:
                _bump(self._numbers, self._redactions, _detector(finding.detector))

    def _time(self, name: str, seconds: float) -> None:
        place = self._single[name]
        self._numbers[place + bisect.bisect_left(BUCKETS, seconds)] += 1
        self._numbers[place + len(BUCKETS) + 1] += seconds


def _bump(numbers: memoryview[float], places: Mapping[tuple[str, ...], int], *labels: str) -> None:
    place = places.get(labels)
    if place is None:  # a value that is in no list: as much of it as is known
        known = [{pair[at] for pair in places} for at in range(len(labels))]
        place = places[tuple(label if label in known[at] else OTHER for at, label in enumerate(labels))]
    numbers[place] += 1


def _outcome(outcome: str | None) -> str:
    if outcome is not None and outcome.startswith("http_"):
        return f"http_{outcome[5:6]}xx"
    return outcome or OTHER


def _detector(name: str) -> str:
    return "custom" if name.startswith("custom.") else name
