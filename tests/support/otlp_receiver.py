"""A real OTLP receiver on loopback: HTTP, gzip, the SDK's own protobufs; it can be slow, busy, picky or gone."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.timeouts import PATIENCE

KINDS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes  # decompressed


class Receiver:
    """What came in, and what is answered: `answer` is asked for each request."""

    def __init__(self, port: int = 0, answer: Callable[[Request], Answer] | None = None) -> None:
        self.requests: list[Request] = []  # what was taken
        self.asked = 0
        self._ids: set[str] = set()
        self._read = 0
        self.answer = answer or (lambda _: Answer())
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)

    def wait(self, enough: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(enough, PATIENCE), [one.path for one in self.requests]

    def _parsed(self, path: str) -> list[Any]:
        return [KINDS[path].FromString(one.body) for one in self.requests if one.path == path]

    def spans(self) -> list[Span]:
        whole = [one for request in self._parsed("/v1/traces") for one in request.resource_spans]
        return [span for one in whole for scope in one.scope_spans for span in scope.spans]

    def records(self) -> list[LogRecord]:
        whole = [one for request in self._parsed("/v1/logs") for one in request.resource_logs]
        return [record for one in whole for scope in one.scope_logs for record in scope.log_records]

    def event_ids(self) -> set[str]:
        """Return the ids of the events that came as log records. What was read before is not parsed again."""
        new, self._read = self.requests[self._read :], len(self.requests)
        for one in new:
            if one.path == "/v1/logs":
                whole = ExportLogsServiceRequest.FromString(one.body).resource_logs
                records = [record for each in whole for scope in each.scope_logs for record in scope.log_records]
                self._ids |= {a.value.string_value for r in records for a in r.attributes if a.key == "log.record.uid"}
        return self._ids

    def metrics(self) -> list[Metric]:
        """Return the metrics of the last request, whose sums are those of all before it."""
        last = self._parsed("/v1/metrics")[-1:]
        return [metric for one in last for r in one.resource_metrics for s in r.scope_metrics for metric in s.metrics]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            receiver.asked += 1
            answer = receiver.answer(request)
            if 200 <= answer.status < 300:
                with receiver.changed:
                    receiver.requests.append(request)
                    receiver.changed.notify_all()
            with contextlib.suppress(OSError):
                self.send_response(answer.status)
                for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler


@contextlib.contextmanager
def receiver(port: int = 0, answer: Callable[[Request], Answer] | None = None) -> Iterator[Receiver]:
    made = Receiver(port, answer)
    try:
        yield made
    finally:
        made.close()
