"""Events say who, what and why; they are masked, and one that cannot be kept harms nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.ids import new_id
from proxy.core.model import AS_RECORDED, AuditEvent, Call, Finding, InFlightCall, Json, Kind, Message
from proxy.errors import AuditUnavailableError
from proxy.gate.event_recorder import RECORDED, EventRecorder, digest
from proxy.gate.refusal import CallState
from proxy.wire.body import SingleMessage
from tests.support.gate_fixture import ALLOW, CONTEXT, call, masked


class Fakes:
    """A sink and a redactor."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.events: list[AuditEvent] = []
        self.failure = failure
        self.asked: list[Any] = []

    async def record(self, event: AuditEvent) -> None:
        self.record_later(event)

    def record_later(self, event: AuditEvent) -> None:
        if self.failure:
            raise self.failure
        self.events.append(event)

    def mask(self, value: Json, detectors: Any, suppressions: Any = ()) -> tuple[Json, tuple[Finding, ...]]:
        self.asked.append(detectors)
        return masked(value), ()


class Here:
    """Does all work at once."""

    async def run(self, _size: int, work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)


def recorder(fakes: Fakes) -> EventRecorder:
    return EventRecorder(fakes, fakes, lambda: 12.5, Here(), lambda: 12.5)  # type: ignore[arg-type]


def step() -> CallState:
    value = call(arguments={"token": "secret", "n": 1})
    made = CallState("call-1", CONTEXT, 12.0)
    made.message = Message(Kind.REQUEST, value, "tools/call", 7)
    made.reading = SingleMessage(made.message)
    made.call = Call("tools/call", CONTEXT.server, "bot", "t", value["params"]["arguments"])
    made.decision = ALLOW
    return made


@pytest.mark.parametrize("is_small", [True, False])
async def test_arguments_with_nothing_to_mask_are_recorded_as_they_are_and_hashed_when_that_is_written(is_small):
    fakes, made = Fakes(), step()
    made.clean = made.call.arguments
    made.is_small = is_small
    await recorder(fakes).decided(made)
    (event,) = fakes.events
    assert (event.arguments, fakes.asked) == ({"token": "secret", "n": 1}, [])
    hashed = AS_RECORDED if is_small else digest(b'{"token":"secret","n":1}')
    assert event.arguments_hash == hashed


async def test_a_decision_is_recorded_with_masked_arguments():
    fakes = Fakes()
    await recorder(fakes).decided(step())
    event = fakes.events[0]
    assert (event.kind, event.decision, event.rule, event.tool, event.jsonrpc_id) == ("decided", "allow", "yes", "t", 7)
    assert event.arguments == {"token": "***", "n": 1}
    assert fakes.asked == [RECORDED]
    assert (event.time, event.gate_ms, event.agent, event.session) == (12.5, 500.0, "bot", "s1")


async def test_what_a_call_took_is_no_matter_of_the_wall_clock():
    fakes = Fakes()
    kept = EventRecorder(fakes, fakes, lambda: -3600.0, Here(), lambda: 12.25)  # type: ignore[arg-type]
    await kept.decided(step())
    kept.completed(InFlightCall("c", step().message, CONTEXT, step().call, ALLOW, 10.0, 11.0), outcome="done")
    decided, completed = fakes.events
    assert (decided.time, decided.gate_ms) == (-3600.0, 250.0)
    assert (completed.time, completed.upstream_ms, completed.total_ms) == (-3600.0, 1250.0, 2250.0)


async def test_a_refusal_is_not_blamed_on_the_rule_that_allowed():
    fakes = Fakes()
    await recorder(fakes).decided(step(), "internal_error", with_arguments=False)
    event = fakes.events[0]
    assert (event.decision, event.reason, event.rule, event.arguments) == ("deny", "internal_error", None, None)


async def test_a_decision_that_cannot_be_kept_raises_and_a_quiet_one_too():
    broken = recorder(Fakes(AuditUnavailableError("full")))
    with pytest.raises(AuditUnavailableError):
        await broken.decided(step())
    with pytest.raises(AuditUnavailableError):
        await broken.decided(step(), quietly=True)


def test_what_happened_after_the_fact_is_kept_or_logged_and_never_raises():
    in_flight = InFlightCall("c", Message(Kind.REQUEST, {}, "tools/call", 1), CONTEXT, step().call, ALLOW, 10.0, 11.0)
    fakes = Fakes()
    recorder(fakes).completed(in_flight, outcome="done")
    noted = recorder(fakes).record_event("request_refused", "not_http", CONTEXT, "deny", {"status": 400})
    completed, refused = fakes.events
    assert (completed.outcome, completed.upstream_ms, completed.total_ms) == ("done", 1500.0, 2500.0)
    assert (refused.event_id, refused.reason, refused.detail) == (noted, "not_http", {"status": 400})
    broken = recorder(Fakes(RuntimeError("boom")))
    broken.completed(in_flight, outcome="done")
    assert broken.record_event("request_refused", "not_http", CONTEXT, "deny")


def test_what_a_server_did_is_masked_and_joined_to_its_call():
    fakes = Fakes()
    in_flight = InFlightCall(
        "call-1", Message(Kind.REQUEST, {}, "tools/call", 7), CONTEXT, step().call, ALLOW, 1.0, 2.0
    )
    recorder(fakes).observed(CONTEXT, in_flight, {"phase": "call", "observations": [{"token": "secret"}]})
    recorder(fakes).observed(CONTEXT, None, {"phase": "startup"})
    first, second = fakes.events
    assert (first.kind, first.call_id, first.tool, first.jsonrpc_id) == ("observed", "call-1", "t", 7)
    assert first.detail == {"phase": "call", "observations": [{"token": "***"}]}
    assert (second.call_id, second.tool, second.detail) == (None, None, {"phase": "startup"})


def test_what_cannot_be_masked_is_left_out_of_the_record():
    class Broken(Fakes):
        def mask(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

    fakes = Broken()
    recorder(fakes).observed(CONTEXT, None, {"phase": "call", "observations": [{"token": "secret"}]})
    assert fakes.events[0].detail == {"phase": "call", "withheld": True}


def test_ids_are_unique_and_in_the_order_of_time():
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert ids == sorted(ids)


def test_a_digest_is_sha_256():
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("meta", "header", "recorded"),
    [
        ({"traceparent": TRACE}, None, TRACE),
        ({"traceparent": TRACE}, "00-" + "1" * 32 + "-" + "2" * 16 + "-00", TRACE),
        ({}, TRACE, TRACE),
        ({"traceparent": "ghp_secret"}, None, None),
        ({"traceparent": ["x"]}, TRACE + "x", None),
        (None, None, None),
    ],
)
async def test_the_trace_that_a_call_belongs_to_is_recorded(meta: Any, header: str | None, recorded: Any) -> None:
    fakes, made = Fakes(), step()
    made.message = Message(Kind.REQUEST, call(_meta=meta), "tools/call", 7)
    made.context = replace(CONTEXT, traceparent=header)
    await recorder(fakes).decided(made)
    assert fakes.events[0].detail.get("traceparent") == recorded


def test_what_a_call_came_to_is_recorded_in_the_trace_of_the_call() -> None:
    fakes, state = Fakes(), step()
    assert state.message is not None
    assert state.call is not None
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    in_flight = InFlightCall("call-1", state.message, CONTEXT, state.call, ALLOW, started=12.0, forwarded=12.0)
    recorder(fakes).completed(replace(in_flight, traceparent=trace), "done")
    recorder(fakes).completed(in_flight, "done")
    assert [event.detail for event in fakes.events] == [{"traceparent": trace}, {}]
