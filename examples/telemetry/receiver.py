"""A tiny OpenTelemetry collector: prints each span that comes in by OTLP over HTTP.

python examples/telemetry/receiver.py --port 4318
"""

from __future__ import annotations

import argparse
import gzip
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SHOWN = ("gen_ai.tool.name", "interlock.decision", "interlock.rule", "error.type")


class Receiver(ThreadingHTTPServer):
    """Takes all three signals, and prints spans."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)

    def show(self, span: Span) -> None:
        """Print a span."""
        said = {one.key: one.value.string_value for one in span.attributes}
        told = " ".join(f"{name}={said[name]}" for name in SHOWN if name in said)
        kind = Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
        milliseconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
        print(f"{kind:<6} {milliseconds:8.1f} ms  {span.name}  {told}", flush=True)


class Handler(BaseHTTPRequestHandler):
    """Answers every signal with an empty message, which is: taken."""

    server: Receiver

    def do_POST(self) -> None:
        """Take one request."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
        if self.path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.server.show(span)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing for a request."""


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=4318)
    given = parser.parse_args()
    with Receiver(given.port) as receiver:
        receiver.serve_forever()


if __name__ == "__main__":
    main()
