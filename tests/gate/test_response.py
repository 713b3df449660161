"""The way back through the gate: results, ends of calls, and what is under way."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Answer
from proxy.errors import SharedCallsUnavailableError
from proxy.gate.gate import Gate
from tests.support.gate_fixture import ALLOW, BOOM, CONTEXT, MASK, World, call, denial_of


@pytest.mark.parametrize(
    ("response", "outcome", "is_error"),
    [
        ({"result": {"content": []}}, "done", False),
        ({"result": {"isError": True}}, "tool_error", True),
        ({"result": "odd"}, "done", None),
        ({"error": {"code": 1}}, "error", None),
    ],
)
async def test_the_end_of_a_call_is_recorded(response: Any, outcome: str, is_error: bool | None) -> None:
    world = World()
    in_flight = (await world.forward(call())).in_flight
    world.now += 0.25
    world.gate.responses.observe(in_flight, {"jsonrpc": "2.0", "id": 7, **response}, b"12345")
    event = world.events[-1]
    assert (event.kind, event.outcome, event.is_error, event.result_size) == ("completed", outcome, is_error, 5)
    assert (event.call_id, event.total_ms, event.upstream_ms) == (in_flight.call_id, 250.0, 250.0)
    assert event.result_digest is not None
    assert len(world.gate.in_flight) == 0


async def test_a_result_is_masked_everywhere_and_the_record_has_no_secret() -> None:
    world = World(replace(ALLOW, redactions=(MASK,)))
    in_flight = (await world.forward(call())).in_flight
    result = {"content": [{"text": "secret"}], "structuredContent": {"a": "secret"}, "_meta": {"b": "secret"}}
    observed = world.gate.responses.observe(
        in_flight, {"id": 7, "result": result, "error": {"message": "secret"}}, b"raw"
    )
    assert "secret" not in json.dumps(observed)
    assert len(world.events[-1].redactions) == 1


@pytest.mark.parametrize("how", ["raises", "gives a list"])
async def test_a_result_that_cannot_be_masked_is_withheld(how: str) -> None:
    world = World(replace(ALLOW, redactions=(MASK,)))
    in_flight = (await world.forward(call())).in_flight
    if how == "raises":
        world.fail["mask"] = BOOM
    else:
        world.mask_as = lambda _: []
    observed = world.gate.responses.observe(in_flight, {"jsonrpc": "2.0", "id": 7, "result": {"a": "secret"}}, b"raw")
    assert observed["id"] == 7
    assert denial_of(observed)["reason"] == "internal_error"
    assert "secret" not in json.dumps(observed)
    assert (world.events[-1].outcome, len(world.gate.in_flight)) == ("unreadable", 0)


async def test_a_response_that_cannot_be_read_passes_only_where_nothing_is_masked() -> None:
    for redactions, withheld in (((), False), ((replace(MASK, action="report"),), False), ((MASK,), True)):
        world = World(replace(ALLOW, redactions=redactions))
        in_flight = (await world.forward(call())).in_flight
        answer = world.gate.responses.unreadable(in_flight)
        assert (answer is not None) is withheld
        assert world.events[-1].outcome == "unreadable"
        if answer is not None:
            assert denial_of(answer)["reason"] == "unreadable_response"
            assert "was executed" in answer["result"]["content"][0]["text"]


async def test_a_call_ends_once() -> None:
    world = World()
    in_flight = (await world.forward(call())).in_flight
    world.gate.responses.abandon(in_flight, "interrupted")
    world.gate.responses.abandon(in_flight, "again")
    world.gate.responses.observe(in_flight, {"id": 7, "result": {}}, b"")
    assert [event.outcome for event in world.events if event.kind == "completed"] == ["interrupted"]


async def test_an_answer_finds_its_call_by_server_session_and_id() -> None:
    world = World()
    in_flight = (await world.forward(call())).in_flight
    assert world.gate.in_flight.find(CONTEXT, 7) is in_flight
    for context, message_id in (
        (CONTEXT, "7"),
        (CONTEXT, 7.0),
        (CONTEXT, None),
        (CONTEXT, [7]),
        (CONTEXT, 8),
        (replace(CONTEXT, session="s2"), 7),
        (replace(CONTEXT, session=None), 7),
        (replace(CONTEXT, server="other"), 7),
    ):
        assert world.gate.in_flight.find(context, message_id) is None
    world.gate.responses.abandon(in_flight, "x")
    assert world.gate.in_flight.find(CONTEXT, 7).closed


async def test_an_id_still_under_way_in_the_session_is_refused_and_one_that_ended_is_not() -> None:
    world = World()
    first = (await world.forward(call())).in_flight
    refused = await world.inspect(call())
    assert isinstance(refused, Answer)
    assert refused.replies[0]["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "id_in_use"
    world.gate.responses.abandon(first, "x")
    second = (await world.forward(call())).in_flight
    assert world.gate.in_flight.find(CONTEXT, 7) is second


async def test_notifications_leave_nothing_under_way() -> None:
    world = World()
    await world.forward({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert len(world.gate.in_flight) == 0


async def test_calls_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world.gate.in_flight, "_limit", 3)
    for number in range(5):
        await world.forward(call(request_id=number))
    assert len(world.gate.in_flight) == 3
    ended = [event for event in world.events if event.kind == "completed"]
    assert [(event.jsonrpc_id, event.outcome) for event in ended] == [(0, "unknown"), (1, "unknown")]
    assert world.gate.in_flight.find(CONTEXT, 0) is None or world.gate.in_flight.find(CONTEXT, 0).closed


async def test_closing_ends_every_call_under_way() -> None:
    world = World()
    await world.forward(call(request_id=1))
    await world.forward(call(request_id=2))
    world.gate.close()
    assert len(world.gate.in_flight) == 0
    assert [event.outcome for event in world.events[2:]] == ["unknown", "unknown"]


async def test_an_end_that_cannot_be_recorded_does_not_raise() -> None:
    world = World()
    in_flight = (await world.forward(call())).in_flight
    world.fail["record_later"] = BOOM
    response = {"id": 7, "result": {}}
    assert world.gate.responses.observe(in_flight, response, b"") is response
    world.gate.recorder.record_refusal("x", "not_http", CONTEXT)


async def test_a_note_is_an_event_of_its_own() -> None:
    world = World()
    world.gate.recorder.record_refusal("connection_refused", "not_http", CONTEXT, protocol="tcp")
    (event,) = world.events
    assert (event.kind, event.reason, event.decision) == ("connection_refused", "not_http", "deny")
    assert event.detail == {"protocol": "tcp"}


def test_an_answer_to_a_call_that_nobody_knows_is_masked_by_all_that_might_have_been_asked() -> None:
    world = World()
    answer = {"jsonrpc": "2.0", "id": 4, "result": {"content": [{"type": "text", "text": "secret"}]}}
    assert "secret" not in json.dumps(world.gate.responses.on_unmatched_response(CONTEXT, answer))
    clean = {"jsonrpc": "2.0", "id": 4, "result": {"content": []}}
    assert world.gate.responses.on_unmatched_response(CONTEXT, clean) is clean
    elsewhere = replace(CONTEXT, session=None)
    assert "secret" not in json.dumps(world.gate.responses.on_unmatched_response(elsewhere, answer))
    other = {"id": 4, "result": "secret"}
    assert world.gate.responses.on_unmatched_response(elsewhere, other) is other, (
        "no session, and no JSON-RPC: not MCP's"
    )
    assert "secret" not in json.dumps(world.gate.responses.on_unmatched_response(CONTEXT, other))


@pytest.mark.parametrize("part", ["unmatched", "mask"])
def test_an_answer_that_cannot_be_masked_is_withheld_whoever_asked(part: str) -> None:
    world = World(fail={part: BOOM})
    answer = {"jsonrpc": "2.0", "id": 4, "result": {"content": [{"type": "text", "text": "secret"}]}}
    said = world.gate.responses.on_unmatched_response(CONTEXT, answer)
    assert (said["id"], denial_of(said)["reason"]) == (4, "internal_error")
    assert "secret" not in json.dumps(said)


async def test_a_call_is_refused_where_workers_cannot_agree_on_its_id() -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise SharedCallsUnavailableError("gone")

    world = World()
    world.gate = Gate(policy=lambda: world, redactor=world, sink=world, shared_calls=Broken())  # type: ignore[arg-type]
    verdict = await world.inspect(call())
    assert isinstance(verdict, Answer)
    assert denial_of(verdict.replies[0])["reason"] == "internal_error"
    in_flight = (await World().forward(call())).in_flight
    world.gate.responses.share(in_flight)
    assert not in_flight.shared


async def test_a_clients_answer_to_a_server_is_not_taken_for_a_call_of_the_same_id() -> None:
    world = World()
    await world.forward(call())
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"roots": []}}
    assert (await world.forward(answer)).message.id == 7
