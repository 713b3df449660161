"""A real client whose SDK traces its calls, the real proxy, and a real receiver of OTLP."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared import _otel
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.acceptance.python_routes import Route
from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.otlp_receiver import Answer, Receiver, receiver
from tests.support.telemetry_events import PARENT, TRACE_ID, TRACEPARENT
from tests.support.timeouts import PATIENCE
from tests.telemetry.test_spans import values


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("python_modern", tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def shared() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory, shared: Receiver) -> Iterator[Interlock]:
    settings = {"sinks": [{"kind": "otlp", "endpoint": shared.url}]}
    with start_interlock(tmp_path_factory.mktemp("proxy"), settings=settings) as running:
        yield running


@pytest.fixture
def route(interlock: Interlock, server: ServerHandle) -> Route:
    return Route(server, server.url, "/mcp", interlock, interlock.proxy_url, interlock.ca_file)


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Trace what the SDK's client does; the fixture of one test alone, since a provider is for a whole process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(_otel, "_tracer", provider.get_tracer("test"))
    return exporter


def call(interlock: Interlock, server: ServerHandle, tool: str, **headers: str) -> Any:
    """Call a tool by plain HTTP."""
    params = {"name": tool, "arguments": {"text": "x", "note": "x"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    request = urllib.request.Request(f"{server.plain_url}/mcp", body, sent)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": interlock.proxy_url}))
    with opener.open(request, timeout=PATIENCE) as response:
        return response.read()


def of_trace(collector: Receiver, trace_id: str) -> list[Span]:
    return [span for span in collector.spans() if span.trace_id.hex() == trace_id]


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_spans_join_the_trace_of_the_sdks_client(
    route: Route, shared: Receiver, finished: InMemorySpanExporter, era: str
) -> None:
    async with route.client(era) as client:
        await client.call_tool("echo", {"text": "hello"})
        denied = await client.call_tool("danger", {"note": "x"})
    assert denied.is_error
    theirs = [
        span for span in finished.get_finished_spans() if (span.attributes or {})["mcp.method.name"] == "tools/call"
    ]
    for tool, span in zip(("echo", "danger"), theirs, strict=True):
        assert span.name.endswith(f"tools/call {tool}")
        assert span.context is not None
        trace_id, span_id = f"{span.context.trace_id:032x}", span.context.span_id.to_bytes(8)
        wanted = 2 if tool == "echo" else 1
        shared.wait(lambda trace_id=trace_id, wanted=wanted: len(of_trace(shared, trace_id)) >= wanted)
        ours, *below = of_trace(shared, trace_id)
        said = values(list(ours.attributes))
        assert (ours.name, ours.kind, ours.parent_span_id) == (f"tools/call {tool}", Span.SPAN_KIND_SERVER, span_id)
        # What the SDK says of its own span, ours says alike.
        assert {name: said[name] for name in dict(span.attributes or {})} == dict(span.attributes or {})
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time - 1e6 <= ours.start_time_unix_nano <= ours.end_time_unix_nano
        if tool == "echo":
            (client_span,) = below
            assert (client_span.kind, client_span.parent_span_id) == (Span.SPAN_KIND_CLIENT, ours.span_id)
            assert said["interlock.decision"] == "allow"
        else:
            assert ours.status.code == Status.STATUS_CODE_ERROR
            assert said["error.type"] == "policy_denied"
            (guardrail,) = ours.events
            assert values(list(guardrail.attributes))["interlock.rule"] == "no-danger"
            denial = (denied.meta or {})["mcp-interlock/denial"]
            assert said["interlock.audit_id"] == denial["audit_id"]


def test_a_header_is_context_too_and_records_and_sums_come_along(
    interlock: Interlock, server: ServerHandle, shared: Receiver
) -> None:
    call(interlock, server, "danger", traceparent=TRACEPARENT)
    shared.wait(lambda: bool(of_trace(shared, TRACE_ID)))
    (span,) = of_trace(shared, TRACE_ID)
    assert span.parent_span_id.hex() == PARENT
    shared.wait(lambda: any(record.trace_id == span.trace_id for record in shared.records()))
    (record,) = [record for record in shared.records() if record.trace_id == span.trace_id]
    assert (record.span_id, record.event_name) == (span.span_id, "interlock.decided")
    shared.wait(lambda: any(one.path == "/v1/metrics" for one in shared.requests))
    assert "mcp.server.operation.duration" in {metric.name for metric in shared.metrics()}


def test_every_event_of_the_trail_has_its_record(interlock: Interlock, server: ServerHandle, shared: Receiver) -> None:
    for _ in range(20):
        call(interlock, server, "danger")
    ids = {event["event_id"] for event in interlock.events()}
    shared.wait(lambda: ids <= shared.event_ids())


def test_a_collector_that_hangs_is_gone_or_busy_slows_and_refuses_no_call(tmp_path: Path, server: ServerHandle) -> None:
    hangs = threading.Event()
    with receiver(answer=lambda _: Answer(503 if hangs.wait(PATIENCE) else 500)) as first:
        port = first.port
        settings = {"sinks": [{"kind": "otlp", "endpoint": first.url, "timeout": 60}]}
        with start_interlock(tmp_path, settings=settings) as interlock:
            # While the collector has not answered its first request, calls come and go.
            answers = [call(interlock, server, "danger") for _ in range(30)]
            assert all(b"policy_denied" in answer for answer in answers)
            ids = {event["event_id"] for event in interlock.events()}
            assert len(ids) >= 30
            hangs.set()
            first.close()
            told = interlock.cli("status")
            assert "sink otlp" in told.stdout
            assert all(b"policy_denied" in call(interlock, server, "danger") for _ in range(5))
            with receiver(port) as second:
                second.wait(lambda: ids <= second.event_ids())
