from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from proxy.core.event import LogEntry
from proxy.errors import ConfigError
from proxy.sinks.role import SinkError
from proxy.sinks.telemetry_settings import OtlpSettings
from proxy.telemetry.otlp_sink import OtlpSink, open_sink
from tests.support.otlp_receiver import Answer, Receiver
from tests.support.telemetry_events import CALL, COMPLETED, DENIED, HOSTILE, PLAIN, entry, hostile
from tests.telemetry.conftest import Opened
from tests.telemetry.test_spans import values

MANY = [entry(fields, number) for number, fields in enumerate(PLAIN.values(), 1)]


@pytest.fixture
def sink(collector: Receiver, opened: Opened) -> Callable[..., OtlpSink]:
    return lambda **more: opened(open_sink(OtlpSettings(kind="otlp", endpoint=collector.url, **more)))


async def test_a_batch_is_spans_records_and_sums(sink: Any, collector: Receiver) -> None:
    made = sink()
    written = await made.write(MANY)
    assert (written.kept, written.poison) == (len(MANY), {})
    assert {one.path for one in collector.requests} == {"/v1/traces", "/v1/logs", "/v1/metrics"}
    assert len(collector.records()) == len(MANY)
    assert len({values(list(one.attributes))["log.record.uid"] for one in collector.records()}) == len(
        {fields["event_id"] for fields in PLAIN.values()}
    )
    assert [span.name for span in collector.spans()].count("tools/call read_file") == 8
    assert {metric.name for metric in collector.metrics()} == {
        "mcp.server.operation.duration",
        "mcp.client.operation.duration",
    }


async def test_a_span_knows_the_rule_that_allowed_its_call(sink: Any, collector: Receiver) -> None:
    made = sink(arguments=True)
    await made.write([entry(CALL, 1)])
    await made.write([entry(COMPLETED, 2)])
    server = collector.spans()[0]
    said = values(list(server.attributes))
    assert (said["interlock.rule"], said["interlock.reason"]) == ("readers", "policy_allowed")
    assert said["gen_ai.tool.call.arguments"] == '{"path":"/etc/hosts"}'


async def test_without_the_choice_no_argument_leaves(sink: Any, collector: Receiver) -> None:
    await sink().write(MANY)
    assert b"/etc/hosts" not in b"".join(one.body for one in collector.requests)


async def test_signals_that_are_not_chosen_are_not_sent(sink: Any, collector: Receiver) -> None:
    await sink(signals=("logs",)).write(MANY)
    assert {one.path for one in collector.requests} == {"/v1/logs"}


async def test_sampling_touches_spans_alone(sink: Any, collector: Receiver) -> None:
    await sink(sampler="always_off").write(MANY)
    assert collector.spans() == []
    assert len(collector.records()) == len(MANY)
    assert collector.metrics()


async def test_a_batch_that_failed_comes_again_with_more_and_nothing_is_counted_twice(
    sink: Any, collector: Receiver
) -> None:
    made = sink()
    collector.answer = lambda request: Answer(503 if request.path == "/v1/metrics" else 200)
    with pytest.raises(SinkError, match="503"):
        await made.write([entry(COMPLETED, 1)])
    collector.answer = lambda _: Answer()
    await made.write([entry(COMPLETED, 1), entry(COMPLETED | {"call_id": "c2"}, 2)])
    (point,) = collector.metrics()[0].histogram.data_points
    assert point.count == 2
    assert len(collector.spans()) == 4
    assert len(collector.records()) == 2


async def test_the_same_batch_by_another_process_is_the_same_spans(sink: Any, collector: Receiver) -> None:
    for _ in range(2):
        await sink(signals=("traces",)).write([entry(COMPLETED, 1)])
    first, second = (one.body for one in collector.requests)
    assert len(collector.spans()) == 4
    assert len({(span.trace_id, span.span_id) for span in collector.spans()}) == 2
    assert len(first) == len(second)


async def test_what_a_collector_refuses_is_named_and_the_rest_arrives(sink: Any, collector: Receiver) -> None:
    collector.answer = lambda request: Answer(400 if b"poisoned" in request.body else 200)
    batch = [entry(COMPLETED | {"tool": "poisoned" if n == 5 else "t", "event_id": f"e{n}"}, n) for n in range(1, 12)]
    written = await sink(signals=("traces", "logs")).write(batch)
    assert list(written.poison) == [4]
    assert "answered 400" in written.poison[4]
    assert len(collector.records()) == 10


async def test_what_is_refused_is_told_though_the_rest_fails_first(sink: Any, collector: Receiver) -> None:
    collector.answer = lambda request: Answer(400 if request.path == "/v1/traces" else 503)
    made = sink(signals=("traces", "logs"))
    with pytest.raises(SinkError, match="503"):
        await made.write([entry(COMPLETED, 1)])
    collector.answer = lambda request: Answer(400 if request.path == "/v1/traces" else 200)
    assert list((await made.write([entry(COMPLETED, 1)])).poison) == [0]


async def test_a_record_of_a_call_that_is_not_known_is_in_no_trace(sink: Any, collector: Receiver) -> None:
    made, later = sink(signals=("logs",)), {**CALL, "kind": "observed", "detail": {}}
    await made.write([entry(later, 1), entry(CALL, 2), entry(later, 3)])
    first, decided, second = collector.records()
    assert first.trace_id == b""
    assert second.trace_id == decided.trace_id != b""


async def test_an_event_that_is_none_holds_up_no_other(sink: Any, collector: Receiver) -> None:
    written = await sink().write([LogEntry("no", "w", 1, "x"), entry(DENIED, 2)])
    assert list(written.poison) == [0]
    assert len(collector.records()) == 1


async def test_a_partial_success_is_told_and_not_sent_again(
    sink: Any, collector: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ExportTraceServiceResponse(partial_success={"rejected_spans": 1, "error_message": "too old"})
    collector.answer = lambda request: Answer(200, told.SerializeToString() if request.path == "/v1/traces" else b"")
    written = await sink().write([entry(COMPLETED, 1)])
    assert written.poison == {}
    assert [one.path for one in collector.requests].count("/v1/traces") == 1
    assert "too old" in "".join(capsys.readouterr())


async def test_metrics_that_are_refused_hold_up_nothing(sink: Any, collector: Receiver) -> None:
    collector.answer = lambda request: Answer(400 if request.path == "/v1/metrics" else 200)
    assert (await sink().write(MANY)).poison == {}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_text_arrives(sink: Any, collector: Receiver, text: str) -> None:
    made = sink(arguments=True)
    assert (await made.write([entry(hostile(text) | {"kind": "decided"}, 1)])).poison == {}
    assert len(collector.spans()) == len(collector.records()) == 1


def test_what_cannot_be_used_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(ConfigError, match="http/protobuf"):
        open_sink(OtlpSettings(kind="otlp"))


async def test_an_event_costs_little(sink: Any, collector: Receiver) -> None:
    made = sink()
    numbers = itertools.count(1)
    batch = [entry(COMPLETED | {"call_id": f"c{n}"}, next(numbers)) for n in range(512)]
    begun = time.thread_time()
    await made.write(batch)
    assert (time.thread_time() - begun) / len(batch) < 3e-3  # about 0.2 ms: two spans, a record and two sums
