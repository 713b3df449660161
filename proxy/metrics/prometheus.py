"""Metrics in Prometheus' text format, written by prometheus_client from our own counters.

The supervisor imports this at the first scrape: prometheus_client takes 25 ms and 2 MB, which no start should pay for.
"""

from __future__ import annotations

from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy.metrics.counters import BUCKETS, Counters, Family, Series
from proxy.metrics.server_latency import BOUNDS as SERVER_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


__all__ = ["CONTENT_TYPE", "counted", "expose", "gauge", "server_times"]


class _Metrics(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def expose(metrics: Iterable[Metric]) -> str:
    """Return metrics as the text of a scrape."""
    return generate_latest(_Metrics(metrics)).decode()


def counted(counters: Counters) -> Iterator[Metric]:
    """Yield what the workers counted, summed over all of them."""
    for family, series in groupby(counters.sums(), key=lambda each: each[0]):
        make = _histogram if family.kind == "histogram" else _numbers
        yield make(family, series)


def server_times(counters: Counters) -> Metric:
    """Return how long each server took, summed over all workers."""
    metric = HistogramMetricFamily(
        "interlock_server_seconds", "Seconds from forwarding a call to its response, by server.", labels=("server",)
    )
    bounds = [*map(str, SERVER_BOUNDS), "+Inf"]
    for server, numbers in sorted(counters.servers.sums().items()):
        metric.add_metric((server,), list(zip(bounds, accumulate(numbers[:-1]), strict=True)), numbers[-1])
    return metric


def gauge(name: str, text: str, *samples: tuple[dict[str, str], float]) -> Metric:
    """Return a gauge with its samples: each the labels and the value."""
    metric = GaugeMetricFamily(name, text, labels=list(samples[0][0]) if samples else ())
    for labels, value in samples:
        metric.add_metric(list(labels.values()), float(value))
    return metric


def _numbers(family: Family, series: Iterable[Series]) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for _, labels, numbers in series:
        # A combination of labels that never occurred is left out: 800 zeros would be most of every scrape.
        if numbers[0] or not labels:
            metric.add_metric(labels, numbers[0])
    return metric


def _histogram(family: Family, series: Iterable[Series]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.help)
    bounds = [*map(str, BUCKETS), "+Inf"]
    for _, _, numbers in series:
        # We count each time in one bucket; Prometheus wants every bucket to include the smaller ones.
        metric.add_metric((), list(zip(bounds, accumulate(numbers[:-1]), strict=True)), numbers[-1])
    return metric
