from __future__ import annotations

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber

from proxy.telemetry.log_records import log_record
from proxy.telemetry.spans import spans
from proxy.telemetry.trace_context import make_sampler
from tests.support.telemetry_events import COMPLETED, DENIED, FINDING, HOSTILE, PLAIN, TRACEPARENT, exported, hostile
from tests.telemetry.test_spans import values


def test_a_record_has_the_event_and_is_joined_to_its_span() -> None:
    record = log_record(exported(DENIED), TRACEPARENT, {})
    (span,) = spans(exported(DENIED), make_sampler("always_on"), {})
    said = values(record.attributes)
    assert (record.trace_id, record.span_id) == (span.trace_id, span.span_id)
    assert record.event_name == "interlock.decided"
    assert said["log.record.uid"] == DENIED["event_id"]
    assert said["interlock.seq"] == 3
    assert (record.severity_number, record.severity_text) == (SeverityNumber.SEVERITY_NUMBER_WARN, "WARN")
    assert "read_file" in record.body.string_value


def test_what_belongs_to_no_call_belongs_to_no_trace() -> None:
    record = log_record(exported(FINDING), None, {})
    assert record.trace_id == record.span_id == b""
    assert record.severity_number == SeverityNumber.SEVERITY_NUMBER_ERROR


@pytest.mark.parametrize("fields", PLAIN.values(), ids=PLAIN)
def test_every_event_has_a_record(fields: dict[str, object]) -> None:
    event = exported(fields)
    record = log_record(event, None, {})
    assert LogRecord.FromString(record.SerializeToString()) == record
    assert values(record.attributes)["interlock.kind"] == event.kind


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_any_event_can_be_sent_and_is_bounded(text: str) -> None:
    assert len(log_record(exported(hostile(text)), None, {}).SerializeToString()) < 200_000


def test_without_the_choice_no_argument_is_in_it() -> None:
    assert "/etc/hosts" not in str(log_record(exported(DENIED), None, {}))
    assert "/etc/hosts" not in str(log_record(exported(COMPLETED), None, {}))
