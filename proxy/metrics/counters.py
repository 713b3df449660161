"""The proxy's counters: numbers in memory that the supervisor shares with its workers.

Each worker writes a row of its own, so no worker waits for another; the supervisor adds the rows up. A worker that
replaces another continues its row, so counters never fall. Events are counted as they are recorded. Label values come
from fixed lists: an agent cannot create time series, whatever it sends.
"""

from __future__ import annotations

import asyncio
import bisect
import mmap
import threading
import time
from collections import deque
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from proxy.core.reasons import REASONS
from proxy.metrics.server_latency import ServerLatencies
from proxy.redact import builtin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from proxy.core.interfaces import EventSink
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
LANE_CALLS: Final = "interlock_lane_calls_total"
STORE: Final = "interlock_store_seconds"
STORE_ERRORS: Final = "interlock_store_errors_total"
WAITING: Final = "interlock_proposals_waiting"

AT_ONCE: Final = 256
BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DECISIONS: Final = ("allow", "deny", "propose")
_GRANTED: Final = (
    *("policy_allowed", "default_allow", "proposal_allowed", "proposal_pending", "proposal_rejected"),
    *("proposal_blocked", "proposal_not_required", "proposal_committed"),
)
_KINDS: Final = ("request_refused", "connection_refused", "operator_refused", "act_refused")
_OUTCOMES: Final = (
    *("done", "tool_error", "error", "input_required", "task", "withheld", "unreadable", "upstream_error"),
    *("interrupted", "unknown", "http_4xx", "http_5xx"),
)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, and the offset in a row of the numbers of each combination of its labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    offsets: Mapping[tuple[str, ...], int]


type Series = tuple[Family, tuple[str, ...], Sequence[float]]


class _Layout:
    """Assigns every number its offset in a row."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.size = 0

    def add(self, name: str, kind: str, text: str, labels: Mapping[str, Iterable[str]] | None = None) -> None:
        assert kind != "histogram" or not labels
        # Every combination exists from the start, `other` included: shared memory cannot grow after the fork.
        values = [(*dict.fromkeys((*each, OTHER)),) for each in (labels or {}).values()]
        offsets = {pair: self.size + offset for offset, pair in enumerate(product(*values))}
        self.families[name] = Family(name, kind, text, tuple(labels or ()), offsets)
        self.size += len(offsets) * (len(BUCKETS) + 2 if kind == "histogram" else 1)


def _lay_out() -> _Layout:
    layout = _Layout()
    reasons = (*REASONS, *_GRANTED)
    layout.add(CALLS, "counter", "Messages decided.", {"decision": _DECISIONS, "reason": reasons})
    layout.add(OUTCOMES, "counter", "Forwarded calls, by how they ended.", {"outcome": _OUTCOMES})
    layout.add(REFUSED, "counter", "Refusals outside a call.", {"kind": _KINDS, "reason": REASONS})
    detectors = (*(detector.id for detector in builtin().detectors), "custom")
    layout.add(REDACTIONS, "counter", "Secrets and personal data found, by detector.", {"detector": detectors})
    layout.add(GATE, "histogram", "Seconds from the arrival of a message to its decision.")
    layout.add(UPSTREAM, "histogram", "Seconds from forwarding a call to its response.")
    layout.add(AUDIT_WRITE, "histogram", "Seconds that a call waited until its event was on disk.")
    layout.add(ACCEPTED, "counter", "Client connections accepted.")
    layout.add(CONNECTIONS, "gauge", "Client connections open now.")
    layout.add(UNDER_WAY, "gauge", "Calls forwarded and waiting for a response.")
    layout.add(STREAMS, "gauge", "Event streams open now.")
    layout.add(LANE_CALLS, "counter", "Requests that began in the fast lane.")
    layout.add(STORE, "histogram", "Seconds that a statement of a call or of upkeep took in the store.")
    layout.add(STORE_ERRORS, "counter", "Statements that the store did not carry out in time.")
    layout.add(WAITING, "gauge", "Proposals that wait for people.")
    return layout


class Counters:
    """The counters of all workers. Create it before the fork; each worker then takes its `row`."""

    def __init__(self, workers: int) -> None:
        self._layout = _lay_out()
        self.servers = ServerLatencies(workers)
        # Anonymous shared mappings: forked workers write the same pages, and they vanish with the last process.
        # prometheus_client's own multiprocess mode takes 6 times as long per event and leaves a file per dead worker.
        self._memory = memoryview(mmap.mmap(-1, 8 * workers * self._layout.size)).cast("d")
        self._beats = memoryview(mmap.mmap(-1, 8 * workers)).cast("d")
        self._rows = [WorkerCounters(self, number) for number in range(workers)]

    @property
    def families(self) -> Iterable[Family]:
        return self._layout.families.values()

    def row(self, worker: int) -> WorkerCounters:
        """Return the counters of a worker; workers are numbered from 1."""
        return self._rows[worker - 1]

    def numbers(self, row: int) -> memoryview[float]:
        return self._memory[row * self._layout.size : (row + 1) * self._layout.size]

    def beat(self, worker: int) -> None:
        self._beats[worker - 1] = time.monotonic()

    def silence(self, worker: int) -> float:
        """Return the seconds since a worker's last heartbeat."""
        return time.monotonic() - self._beats[worker - 1]

    def total(self, offset: int) -> float:
        return sum(self._memory[offset :: self._layout.size])

    def sums(self) -> Iterator[Series]:
        """Yield every metric with its labels and its number; for a histogram its buckets, the overflow, and the sum."""
        width = len(BUCKETS) + 2
        for family in self.families:
            for values, offset in family.offsets.items():
                count = width if family.kind == "histogram" else 1
                yield family, values, [self.total(offset + more) for more in range(count)]


class WorkerCounters:
    """The counters of one worker. Safe for its threads."""

    def __init__(self, counters: Counters, number: int) -> None:
        self._counters = counters
        self._number = number
        self._numbers = counters.numbers(number)
        self._total = counters.total
        self._servers = counters.servers.row(number + 1)
        # `+=` on shared memory reads and writes in two steps; large bodies are scanned in threads, which count too.
        self._lock = threading.Lock()
        families = {family.name: family.offsets for family in counters.families}
        self._calls, self._outcomes = families[CALLS], families[OUTCOMES]
        self._refused, self._redactions = families[REFUSED], families[REDACTIONS]
        self._single = {name: offsets[()] for name, offsets in families.items() if () in offsets}

    def begin(self) -> None:
        """Set the gauges to 0: a worker that was killed could not count its connections down."""
        for name in (CONNECTIONS, UNDER_WAY, STREAMS, WAITING):
            self.set(name, 0)
        self.beat()

    def beat(self) -> None:
        self._counters.beat(self._number + 1)

    def set(self, name: str, value: float) -> None:
        self._numbers[self._single[name]] = value

    def add(self, name: str) -> None:
        with self._lock:
            self._numbers[self._single[name]] += 1

    def in_all(self, name: str) -> float:
        """Return a number summed over all workers."""
        return self._total(self._single[name])

    def time(self, name: str, seconds: float) -> None:
        with self._lock:
            self._time(name, seconds)

    def count(self, event: AuditEvent) -> None:
        with self._lock:
            if event.kind == "decided":
                _bump(self._numbers, self._calls, event.decision or OTHER, event.reason or OTHER)
                if event.gate_ms is not None:
                    self._time(GATE, event.gate_ms / 1000)
            elif event.kind == "completed":
                _bump(self._numbers, self._outcomes, _outcome(event.outcome))
                if event.upstream_ms is not None:
                    self._time(UPSTREAM, event.upstream_ms / 1000)
                    self._servers.time(event.server or OTHER, event.upstream_ms / 1000)
            elif event.kind.endswith("_refused"):
                _bump(self._numbers, self._refused, event.kind, event.reason or OTHER)
            for finding in event.redactions:
                # A policy names its own detectors, and a reload may bring new names: they share one series.
                name = "custom" if finding.detector.startswith("custom.") else finding.detector
                _bump(self._numbers, self._redactions, name)

    def _time(self, name: str, seconds: float) -> None:
        offset = self._single[name]
        self._numbers[offset + bisect.bisect_left(BUCKETS, seconds)] += 1
        self._numbers[offset + len(BUCKETS) + 1] += seconds


def _bump(numbers: memoryview[float], offsets: Mapping[tuple[str, ...], int], *labels: str) -> None:
    offset = offsets.get(labels)
    if offset is None:
        # Only the unknown label becomes `other`: a new reason still counts under its decision.
        known = [{pair[at] for pair in offsets} for at in range(len(labels))]
        offset = offsets[tuple(label if label in known[at] else OTHER for at, label in enumerate(labels))]
    numbers[offset] += 1


def _outcome(outcome: str | None) -> str:
    if outcome is not None and outcome.startswith("http_"):
        return f"http_{outcome[5:6]}xx"
    return outcome or OTHER


class CountingSink:
    """An EventSink in front of another that counts its events. Events that could not be recorded happened: they count.

    Counting waits until the end of the event loop's iteration and then handles all events at once: counted one by one,
    each event would find the counters' code and data evicted from the CPU caches, which costs ten times the counting.
    """

    def __init__(self, sink: EventSink, counters: WorkerCounters) -> None:
        self._sink = sink
        self._counters = counters
        # Events, and the seconds that each of them took to become durable.
        self._uncounted: deque[AuditEvent | float] = deque()

    async def record(self, event: AuditEvent) -> None:
        """Return once the wrapped sink has made `event` durable."""
        begun = time.perf_counter()
        try:
            await self._sink.record(event)
        finally:
            self._count(event)  # also where that failed: it happened
        self._count(time.perf_counter() - begun)

    def record_later(self, event: AuditEvent) -> None:
        self._count(event)
        self._sink.record_later(event)

    def _count(self, what: AuditEvent | float) -> None:
        self._uncounted.append(what)
        loop = asyncio._get_running_loop()  # noqa: SLF001  the public function raises if there is none
        if loop is None:
            self._count_all()
        # Once for the first event; and again every 256, in case a loop ended before its callback ran.
        elif len(self._uncounted) % AT_ONCE == 1:
            loop.call_soon(self._count_all)

    def _count_all(self) -> None:
        # Threads that scan large bodies may empty the deque meanwhile, so emptiness is found by popping, not by asking.
        uncounted, counters = self._uncounted, self._counters
        while True:
            try:
                what = uncounted.popleft()
            except IndexError:
                return
            if isinstance(what, float):
                counters.time(AUDIT_WRITE, what)
            else:
                counters.count(what)
