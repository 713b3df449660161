from __future__ import annotations

import warnings

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, HistogramDataPoint, Metric

from proxy.telemetry.durations import BOUNDS, CLIENT, MAX_SERIES, SERVER, Durations
from tests.support.telemetry_events import CALL, COMPLETED, DENIED, NOW, exported
from tests.telemetry.test_spans import values

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opentelemetry.semconv._incubating.metrics import mcp_metrics


def points(metrics: list[Metric], name: str) -> list[HistogramDataPoint]:
    (metric,) = [one for one in metrics if one.name == name]
    return list(metric.histogram.data_points)


def test_names_unit_buckets_and_temporality_are_those_of_the_conventions() -> None:
    metrics = Durations(NOW - 10).metrics([exported(COMPLETED)])
    names = [mcp_metrics.MCP_SERVER_OPERATION_DURATION, mcp_metrics.MCP_CLIENT_OPERATION_DURATION]
    assert [one.name for one in metrics] == names == [SERVER, CLIENT]
    for metric in metrics:
        assert metric.unit == "s"
        assert metric.histogram.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        (point,) = metric.histogram.data_points
        assert tuple(point.explicit_bounds) == (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert point.start_time_unix_nano < point.time_unix_nano


@pytest.mark.parametrize(
    ("milliseconds", "bucket"), [(0, 0), (10, 0), (10.1, 1), (300_000, 13), (300_001, 14), (250, 5)]
)
def test_a_time_is_in_the_bucket_whose_bound_is_at_least_that(milliseconds: float, bucket: int) -> None:
    (point,) = points(Durations(NOW).metrics([exported(COMPLETED | {"total_ms": milliseconds})]), SERVER)
    assert list(point.bucket_counts).index(1) == bucket
    assert point.count == sum(point.bucket_counts) == 1
    assert point.sum == point.min == point.max == pytest.approx(milliseconds / 1000)


def test_sums_grow_by_what_was_kept_and_a_repetition_changes_nothing() -> None:
    durations = Durations(NOW)
    first = durations.metrics([exported(COMPLETED)] * 3)
    assert durations.metrics([exported(COMPLETED)] * 3) == first
    durations.keep()
    (point,) = points(durations.metrics([exported(COMPLETED)]), SERVER)
    assert point.count == 4


def test_a_denial_took_the_time_of_the_gate_and_asked_no_server() -> None:
    metrics = Durations(NOW).metrics([exported(DENIED)])
    assert [one.name for one in metrics] == [SERVER]
    (point,) = points(metrics, SERVER)
    assert point.sum == 0.0005
    assert values(list(point.attributes))["error.type"] == "policy_denied"


def test_what_is_no_operation_that_ended_is_no_metric() -> None:
    assert Durations(NOW).metrics([exported(CALL)]) == []
    assert Durations(NOW).metrics([]) == []


def test_agents_cannot_make_more_series_than_there_is_room_for() -> None:
    calls = [exported(COMPLETED | {"tool": f"tool-{number}"}) for number in range(MAX_SERIES + 50)]
    found = points(Durations(NOW).metrics(calls), SERVER)
    assert len(found) == MAX_SERIES + 1
    (over,) = [one for one in found if values(list(one.attributes)) == {"otel.metric.overflow": True}]
    assert over.count == 50


def test_no_attribute_tells_one_request_from_another() -> None:
    (point,) = points(Durations(NOW).metrics([exported(COMPLETED)]), CLIENT)
    assert set(values(list(point.attributes))) == {
        "mcp.method.name", "gen_ai.operation.name", "gen_ai.tool.name", "mcp.protocol.version", "network.transport",
        "network.protocol.name", "server.address", "server.port",
    }  # fmt: skip
    assert len(BOUNDS) == 14
