from __future__ import annotations

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from proxy.telemetry.otlp_requests import OtlpRequests, rejected
from tests.telemetry.test_spans import values


def test_a_request_names_its_resource_and_its_scope() -> None:
    made = OtlpRequests({"service.name": "interlock"})
    (whole,) = ExportTraceServiceRequest.FromString(made.traces([Span(name="a")])).resource_spans
    assert values(list(whole.resource.attributes)) == {"service.name": "interlock"}
    assert whole.scope_spans[0].scope.name == "mcp-interlock"
    assert [span.name for span in whole.scope_spans[0].spans] == ["a"]
    assert len(ExportMetricsServiceRequest.FromString(made.metrics([])).resource_metrics) == 1


@pytest.mark.parametrize(
    ("signal", "answer", "told"),
    [
        ("traces", b"", (0, "")),
        ("traces", b"{}", (0, "")),
        ("traces", b"\xff\xff", (0, "")),
        (
            "traces",
            ExportTraceServiceResponse(
                partial_success={"rejected_spans": 3, "error_message": "too old"}
            ).SerializeToString(),
            (3, "too old"),
        ),
        (
            "logs",
            ExportLogsServiceResponse(partial_success={"error_message": "be careful"}).SerializeToString(),
            (0, "be careful"),
        ),
        (
            "traces",
            ExportTraceServiceResponse(partial_success={"rejected_spans": -3}).SerializeToString(),
            (0, ""),
        ),
    ],
)
def test_what_a_collector_rejected_is_read(signal: str, answer: bytes, told: tuple[int, str]) -> None:
    assert rejected(signal, answer) == told
