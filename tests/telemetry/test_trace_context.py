from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy.telemetry.trace_context import TraceContext, make_sampler, read_traceparent, span_id, trace_of
from tests.support.telemetry_events import PARENT, TRACE_ID, TRACEPARENT

CASES = [
    TRACEPARENT,
    f"00-{TRACE_ID}-{PARENT}-00",
    f"00-{TRACE_ID}-{PARENT}-ff",
    f"01-{TRACE_ID}-{PARENT}-01",
    f"ff-{TRACE_ID}-{PARENT}-01",
    f"00-{'0' * 32}-{PARENT}-01",
    f"00-{TRACE_ID}-{'0' * 16}-01",
    f"00-{TRACE_ID.upper()}-{PARENT}-01",
    f"00-{TRACE_ID}-{PARENT}",
    f"00-{TRACE_ID}-{PARENT}-1",
    f"0-{TRACE_ID}-{PARENT}-01",
    f"00-{TRACE_ID[:-1]}-{PARENT}-01",
    f"00-{TRACE_ID[:-1]}g-{PARENT}-01",
    "",
    "00",
]


@pytest.mark.parametrize("text", CASES)
def test_a_traceparent_is_read_as_opentelemetry_reads_it(text: str) -> None:
    theirs = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": text})).get_span_context()
    ours = read_traceparent(text)
    if not theirs.is_valid:
        assert ours is None
    else:
        assert ours is not None
        assert ours.parent is not None
        assert (ours.trace_id.hex(), ours.parent.hex()) == (f"{theirs.trace_id:032x}", f"{theirs.span_id:016x}")
        assert ours.sampled == theirs.trace_flags.sampled


IDS = "12345678901234567890123456789012-1234567890123456"
# The vectors of W3C's own test suite (w3c/trace-context, test/test.py), and whether the trace goes on.
W3C = {
    f"00-{IDS}-01": True,
    f"00-{IDS}-02": True,
    f"cc-{IDS}-01": True,
    f"cc-{IDS}-01-what-the-future-will-be-like": True,
    f" 00-{IDS}-01": True,
    f"\t00-{IDS}-01": True,
    f"00-{IDS}-01 ": True,
    f"\t 00-{IDS}-01 \t": True,
    f"00-{IDS}-01.": False,
    f"00-{IDS}-01-what-the-future-will-be-like": False,
    f"cc-{IDS}-01.what-the-future-will-be-like": False,
    f"ff-{IDS}-01": False,
    f".0-{IDS}-01": False,
    f"0.-{IDS}-01": False,
    f"000-{IDS}-01": False,
    f"0000-{IDS}-01": False,
    f"0-{IDS}-01": False,
    "00-00000000000000000000000000000000-1234567890123456-01": False,
    "00-.2345678901234567890123456789012-1234567890123456-01": False,
    "00-1234567890123456789012345678901.-1234567890123456-01": False,
    "00-123456789012345678901234567890123-1234567890123456-01": False,
    "00-1234567890123456789012345678901-1234567890123456-01": False,
    "00-12345678901234567890123456789012-0000000000000000-01": False,
    "00-12345678901234567890123456789012-.234567890123456-01": False,
    "00-12345678901234567890123456789012-123456789012345.-01": False,
    "00-12345678901234567890123456789012-12345678901234567-01": False,
    "00-12345678901234567890123456789012-123456789012345-01": False,
    f"00-{IDS}-.0": False,
    f"00-{IDS}-0.": False,
    f"00-{IDS}-001": False,
    f"00-{IDS}-1": False,
}


@pytest.mark.parametrize(("text", "goes_on"), W3C.items())
def test_a_traceparent_is_read_as_w3c_tests_it(text: str, goes_on: bool) -> None:
    assert (read_traceparent(text) is not None) == goes_on


@pytest.mark.parametrize("value", [None, 7, ["00"], {"traceparent": TRACEPARENT}])
def test_what_is_no_text_is_no_traceparent(value: object) -> None:
    assert read_traceparent(value) is None


def test_ids_of_a_call_are_the_same_each_time_and_differ_by_call_and_kind() -> None:
    assert span_id("a", "server") == span_id("a", "server")
    assert len({span_id("a", "server"), span_id("a", "client"), span_id("b", "server"), span_id("b", "client")}) == 4
    assert trace_of("a", None) == trace_of("a", "no traceparent") != trace_of("b", None)
    assert trace_of("a", TRACEPARENT).trace_id.hex() == TRACE_ID


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_a_ratio_chooses_the_traces_that_opentelemetrys_sdk_chooses(ratio: float) -> None:
    theirs, ours = ParentBased(TraceIdRatioBased(ratio)), make_sampler("parentbased_traceidratio", ratio)
    chosen = 0
    for number in range(400):
        context = trace_of(f"call-{number}", None)
        decision = theirs.should_sample(None, int.from_bytes(context.trace_id), "x").decision.is_sampled()
        assert ours(context) == decision
        chosen += decision
    assert chosen == pytest.approx(400 * ratio, abs=40)


@pytest.mark.parametrize(
    ("name", "alone", "sampled", "unsampled"),
    [
        ("always_on", True, True, True),
        ("always_off", False, False, False),
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
        ("parentbased_traceidratio", True, True, False),
        ("traceidratio", True, True, True),
    ],
)
def test_a_sampler_follows_its_parent_or_does_not(name: str, alone: bool, sampled: bool, unsampled: bool) -> None:
    sampler = make_sampler(name, 1.0)  # type: ignore[arg-type]
    trace_id, parent = bytes.fromhex(TRACE_ID), bytes.fromhex(PARENT)
    contexts = TraceContext(trace_id), TraceContext(trace_id, parent, 1), TraceContext(trace_id, parent, 0)
    assert [sampler(context) for context in contexts] == [alone, sampled, unsampled]
