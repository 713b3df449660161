"""Metrics as a scrape reads them, by prometheus_client's own parser."""

from __future__ import annotations

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from proxy.core.model import AuditEvent
from proxy.metrics.counters import BUCKETS, CALLS, GATE, Counters
from proxy.metrics.prometheus import CONTENT_TYPE, counted, expose, gauge, server_times


def scrape(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in text_string_to_metric_families(expose(metrics))}


@pytest.fixture
def scraped() -> dict[str, Metric]:
    counters = Counters(2)
    event = AuditEvent(event_id="e", kind="decided", time=0, decision="allow", reason="policy_allowed", gate_ms=1.0)
    for worker in (1, 2):
        counters.row(worker).count(event)
    counters.row(1).time(GATE, 100.0)
    return scrape(*counted(counters))


def test_every_metric_is_there_with_its_kind_and_help(scraped: dict[str, Metric]) -> None:
    families = {family.name.removesuffix("_total"): family for family in Counters(1).families}
    assert scraped.keys() == families.keys()
    for name, metric in scraped.items():
        assert (metric.type, metric.documentation) == (families[name].kind, families[name].help)


def test_a_counter_is_the_sum_over_workers_and_labels_never_counted_are_left_out(scraped: dict[str, Metric]) -> None:
    (calls,) = scraped[CALLS.removesuffix("_total")].samples
    assert (calls.name, calls.value) == (CALLS, 2)
    assert calls.labels == {"decision": "allow", "reason": "policy_allowed"}


def test_a_metric_without_labels_is_there_before_it_is_counted(scraped: dict[str, Metric]) -> None:
    (connections,) = scraped["interlock_connections"].samples
    assert connections.value == 0


def test_the_buckets_of_a_histogram_are_cumulative_and_end_with_all(scraped: dict[str, Metric]) -> None:
    samples = scraped[GATE].samples
    buckets = [(float(sample.labels["le"]), sample.value) for sample in samples if sample.name.endswith("_bucket")]
    assert [bound for bound, _ in buckets] == [*BUCKETS, float("inf")]
    assert [value for bound, value in buckets if bound < 0.001] == [0]
    assert {value for bound, value in buckets if 0.001 <= bound <= 60} == {2}
    assert {s.name: round(s.value, 6) for s in samples[-2:]} == {f"{GATE}_count": 3, f"{GATE}_sum": 100.002}
    assert buckets[-1][1] == 3


@pytest.mark.parametrize("text", ['q"', "\\", "a\nb", "ü", '\\n"\\"'])
def test_a_label_comes_back_as_it_was(text: str) -> None:
    (sample,) = scrape(gauge("x_info", "What it is.", ({"a": text}, 1)))["x_info"].samples
    assert (sample.labels, sample.value) == ({"a": text}, 1)


def test_the_content_type_is_the_text_format_that_every_prometheus_reads() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


def test_the_latency_of_servers_has_their_names_whatever_they_are() -> None:
    counters = Counters(1)
    for server in ("files.example", 'a"\n\\b', "files.example"):
        counters.row(1).count(AuditEvent(event_id="e", kind="completed", time=0, server=server, upstream_ms=20.0))
    (metric,) = scrape(server_times(counters)).values()
    counts = {one.labels["server"]: one.value for one in metric.samples if one.name.endswith("_count")}
    assert counts == {"files.example": 2, 'a"\n\\b': 1}
    below = {
        one.labels["le"]: one.value
        for one in metric.samples
        if one.labels == {"server": "files.example", "le": "0.025"}
    }
    assert below == {"0.025": 2}
