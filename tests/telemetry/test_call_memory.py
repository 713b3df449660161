from __future__ import annotations

from proxy.telemetry.call_memory import MAX_CALLS, NOTHING, CallMemory
from tests.support.telemetry_events import CALL, COMPLETED, FINDING, TRACEPARENT, exported


def test_a_later_event_knows_what_its_call_was_decided_by() -> None:
    memory = CallMemory()
    memory.recall(exported(CALL, with_arguments=True))
    known = memory.recall(exported({**CALL, "kind": "observed", "detail": {}}))
    assert known.traceparent == TRACEPARENT
    assert known.attributes["interlock.rule"] == "readers"
    assert known.attributes["interlock.rules"] == ("readers", "scrub")
    assert known.attributes["gen_ai.tool.call.arguments"] == '{"path":"/etc/hosts"}'


def test_a_completed_call_has_its_trace_whatever_is_remembered() -> None:
    assert CallMemory().recall(exported(COMPLETED)).traceparent == TRACEPARENT
    assert CallMemory().recall(exported(FINDING)) == NOTHING


def test_it_is_bounded() -> None:
    memory = CallMemory()
    for number in range(MAX_CALLS + 10):
        memory.recall(exported(CALL | {"call_id": f"c{number}"}))
    assert memory.recall(exported({**COMPLETED, "call_id": "c9", "detail": {}})) == NOTHING
    assert memory.recall(exported({**COMPLETED, "call_id": "c10", "detail": {}})) != NOTHING
