"""Requests of OTLP from events, and what a collector's answer says it rejected. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from proxy.system.package_data import version
from proxy.telemetry.otlp_values import attributes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

CONTENT_TYPE: Final = "application/x-protobuf"
_RESPONSES: Final[Mapping[str, tuple[Any, str]]] = {
    "traces": (ExportTraceServiceResponse, "rejected_spans"),
    "logs": (ExportLogsServiceResponse, "rejected_log_records"),
    "metrics": (ExportMetricsServiceResponse, "rejected_data_points"),
}


class OtlpRequests:
    """Makes requests in the name of one resource."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = Resource(attributes=attributes(resource))
        self._scope = InstrumentationScope(name="mcp-interlock", version=version())

    def traces(self, spans: Sequence[Span]) -> bytes:
        scoped = ScopeSpans(scope=self._scope, spans=spans)
        whole = ResourceSpans(resource=self._resource, scope_spans=[scoped])
        return bytes(ExportTraceServiceRequest(resource_spans=[whole]).SerializeToString())

    def logs(self, records: Sequence[LogRecord]) -> bytes:
        scoped = ScopeLogs(scope=self._scope, log_records=records)
        whole = ResourceLogs(resource=self._resource, scope_logs=[scoped])
        return bytes(ExportLogsServiceRequest(resource_logs=[whole]).SerializeToString())

    def metrics(self, metrics: Sequence[Metric]) -> bytes:
        scoped = ScopeMetrics(scope=self._scope, metrics=metrics)
        whole = ResourceMetrics(resource=self._resource, scope_metrics=[scoped])
        return bytes(ExportMetricsServiceRequest(resource_metrics=[whole]).SerializeToString())


def rejected(signal: str, answer: bytes) -> tuple[int, str]:
    """Return how many a collector rejected of what it took, and why; 0 and a text is a warning of the collector's."""
    made, count = _RESPONSES[signal]
    try:
        told = made.FromString(answer).partial_success
    except DecodeError:
        return 0, ""  # it took the request; an answer that is no protobuf says nothing
    return max(0, getattr(told, count)), told.error_message[:500]
