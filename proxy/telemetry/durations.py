"""The histograms of MCP's conventions: how long operations took. Pure.

They are cumulative: a batch that is sent again brings the same sums. So add a batch, send the sums, and `keep` them
once they have arrived; a batch that did not arrive is added again from where the last one ended.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
)

from proxy.telemetry import attributes as names
from proxy.telemetry.otlp_values import attributes, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.telemetry.exported_event import ExportedEvent

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
SERVER: Final = "mcp.server.operation.duration"
CLIENT: Final = "mcp.client.operation.duration"
# OpenTelemetry's word for the sum of what is over the limit: agents choose names of tools, and could make series.
OVERFLOW: Final = (("otel.metric.overflow", True),)
MAX_SERIES: Final = 1000
_TEXT: Final = {
    SERVER: "Time that an MCP request took from its arrival at the proxy to its answer.",
    CLIENT: "Time that the MCP server took, as the proxy saw it.",
}

type Series = tuple[tuple[str, str | int | bool], ...]


@dataclass(slots=True)
class _Sums:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0
    least: float = float("inf")
    most: float = 0.0

    def copy(self) -> _Sums:
        return _Sums([*self.counts], self.total, self.least, self.most)

    def add(self, seconds: float) -> None:
        # A bucket holds what is at most its bound.
        self.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds
        self.least, self.most = min(self.least, seconds), max(self.most, seconds)


class Durations:
    """The sums of one process since `start`, in seconds since the epoch."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._kept: dict[str, dict[Series, _Sums]] = {SERVER: {}, CLIENT: {}}
        self._sums = self._kept

    def metrics(self, events: Iterable[ExportedEvent]) -> list[Metric]:
        """Return the sums with `events` in them, none of which was kept before. Nothing where they hold no calls."""
        self._sums = {name: {key: one.copy() for key, one in kept.items()} for name, kept in self._kept.items()}
        last = 0.0
        for event in events:
            if self._add(event):
                last = max(last, event.time)
        if not last:
            return []
        return [_metric(name, self._sums[name], self._start, last) for name in self._sums if self._sums[name]]

    def keep(self) -> None:
        """Take what `metrics` last returned as sent."""
        self._kept = self._sums

    def _add(self, event: ExportedEvent) -> bool:
        answered = event.kind == "decided" and event.fields.get("decision") != "allow" and event.text("method")
        if event.kind != "completed" and not answered:
            return False
        shared = names.operation(event)
        took = event.number("gate_ms" if answered else "total_ms")
        if took is not None:
            self._time(SERVER, shared, took)
        if (upstream := event.number("upstream_ms")) is not None:
            self._time(CLIENT, shared | names.server(event), upstream)
        return took is not None or upstream is not None

    def _time(self, name: str, said: dict[str, str | int | None], milliseconds: float) -> None:
        series: Series = tuple((key, value) for key, value in said.items() if value is not None)
        sums = self._sums[name]
        if series not in sums and len(sums) >= MAX_SERIES:
            series = OVERFLOW
        sums.setdefault(series, _Sums()).add(milliseconds / 1000)


def _metric(name: str, series: dict[Series, _Sums], start: float, now: float) -> Metric:
    points = [_point(said, sums, start, now) for said, sums in series.items()]
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    histogram = Histogram(data_points=points, aggregation_temporality=cumulative)
    return Metric(name=name, description=_TEXT[name], unit="s", histogram=histogram)


def _point(said: Series, sums: _Sums, start: float, now: float) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=attributes(dict(said)),
        start_time_unix_nano=nanoseconds(start),
        # A log that was left behind may hold events from before this process began.
        time_unix_nano=max(nanoseconds(now), nanoseconds(start)),
        count=sum(sums.counts),
        sum=sums.total,
        min=sums.least,
        max=sums.most,
        bucket_counts=sums.counts,
        explicit_bounds=BOUNDS,
    )
