"""The one order of things: what is forwarded, what is refused, and what is recorded when."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Answer, Call, Decision, Kind, Message, Outcome, Pass, Reject
from proxy.errors import AuditUnavailableError, WireError
from proxy.gate import argument_masking
from proxy.gate import request as request_module
from proxy.gate.request import as_call
from tests.support.gate_fixture import ALLOW, BOOM, CONTEXT, DENY, MASK, World, call, denial_of, only_reply


async def test_an_allowed_call_is_forwarded_after_its_event_is_durable() -> None:
    world = World()
    verdict = await world.forward(call())
    assert world.order.index("record") < world.order.index("Forward")
    assert "record_later" not in world.order
    assert verdict.message.value == call()
    assert world.calls == [Call("tools/call", "mcp.example.com", "bot", "t", {"path": "/x"})]
    (event,) = world.events
    assert (event.kind, event.decision, event.reason, event.rule) == ("decided", "allow", "allowed", "yes")
    assert (event.tool, event.arguments, event.jsonrpc_id) == ("t", {"path": "/x"}, 7)
    assert (event.agent, event.authenticated, event.server, event.session) == ("bot", True, "mcp.example.com", "s1")
    assert event.call_id == verdict.in_flight.call_id
    assert len(world.gate.in_flight) == 1


@pytest.mark.parametrize(
    "method", ["ping", "initialize", "notifications/initialized", "tools/list", "resources/templates/list"]
)
async def test_what_makes_a_server_do_nothing_does_not_wait_for_the_disk(method: str) -> None:
    world = World()
    await world.inspect({"jsonrpc": "2.0", "id": 1, "method": method})
    assert "record_later" in world.order
    assert "record" not in world.order


@pytest.mark.parametrize(
    "value",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x"}},
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "t"}},
        {"jsonrpc": "2.0", "id": 1, "result": {"content": []}},
        {"jsonrpc": "2.0", "id": 1, "method": "tasks/result", "params": {"taskId": "x"}},
    ],
    ids=["another method", "tool call as a notification", "response", "task result"],
)
async def test_every_other_message_waits_for_the_disk(value: Any) -> None:
    world = World()
    await world.forward(value)
    assert world.order.count("record") == 1


async def test_what_is_not_mcp_passes_unrecorded() -> None:
    world = World()
    assert isinstance(await world.inspect(b'{"a":1}'), Pass)
    assert world.order == ["Pass"]


async def test_a_denied_call_is_answered_with_a_result_the_model_can_act_on() -> None:
    world = World(DENY)
    verdict = await world.inspect(call("danger"))
    reply = only_reply(verdict)
    (event,) = world.events
    assert reply["id"] == 7
    assert (reply["result"]["isError"], reply["result"]["resultType"]) == (True, "complete")
    assert denial_of(reply) == {
        "reason": "policy_denied",
        "rule": "no-danger",
        "audit_id": event.call_id,
        "retryable": False,
    }
    text = reply["result"]["content"][0]["text"]
    for part in ("policy_denied", "tool 'danger'", "Rule no-danger: Not that tool.", "will not help", event.call_id):
        assert part in text
    assert (event.decision, event.reason, event.rule) == ("deny", "policy_denied", "no-danger")
    assert world.order[-2:] == ["record", "Answer"]
    assert len(world.gate.in_flight) == 0


async def test_a_rule_may_ask_for_an_error_instead() -> None:
    reply = only_reply(await World(replace(DENY, respond="error")).inspect(call()))
    assert reply["error"]["code"] == 40301
    assert denial_of(reply)["reason"] == "policy_denied"


@pytest.mark.parametrize(
    "value",
    [call(task={"ttl": 5}), {"jsonrpc": "2.0", "id": "x", "method": "resources/read", "params": {"uri": "y"}}],
    ids=["task", "another method"],
)
async def test_what_expects_no_tool_result_is_answered_with_an_error(value: Any) -> None:
    reply = only_reply(await World(DENY).inspect(value))
    assert (reply["id"], reply["error"]["code"]) == (value["id"], 40301)


@pytest.mark.parametrize(
    "value",
    [
        {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "t"}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
        {"jsonrpc": "2.0", "id": 3, "result": {}},
    ],
    ids=["call without id", "notification", "response"],
)
async def test_what_expects_no_answer_gets_none(value: Any) -> None:
    world = World(DENY)
    assert await world.inspect(value) == Answer((), status=202)
    assert world.events[0].decision == "deny"


async def test_every_request_of_a_batch_is_answered_and_none_decided() -> None:
    world = World()
    other = {"jsonrpc": "2.0", "id": "b", "method": "tools/list"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    verdict = await world.inspect([call(), note, [other], {"jsonrpc": "2.0", "id": 9, "result": {}}, {"id": 1.5}])
    assert isinstance(verdict, Answer)
    assert verdict.batch
    assert [reply["id"] for reply in verdict.replies] == [7, "b"]
    assert {denial_of(reply)["reason"] for reply in verdict.replies} == {"batch"}
    assert world.order == ["record", "Answer"]


async def test_a_batch_of_notifications_gets_no_answer() -> None:
    verdict = await World().inspect([{"jsonrpc": "2.0", "method": "notifications/initialized"}])
    assert verdict == Answer((), batch=True, status=202)


async def test_a_header_that_disagrees_is_the_protocols_own_error() -> None:
    world = World()
    reply = only_reply(await world.inspect(call(), [("Mcp-Name", "other")]), status=400)
    assert (reply["id"], reply["error"]["code"]) == (7, -32020)
    assert denial_of(reply)["reason"] == "header_mismatch"
    assert "decide" not in world.order


async def test_a_header_that_stands_twice_is_refused() -> None:
    reply = only_reply(await World().inspect(call(), [("Mcp-Name", "t"), ("mcp-name", "t")]))
    assert denial_of(reply)["reason"] == "duplicate_header"


async def test_what_cannot_be_read_is_answered_by_id_where_there_is_one() -> None:
    world = World()
    body = b'{"id":1,' + json.dumps(call()).encode()[1:]
    assert denial_of(only_reply(await world.inspect(body)))["reason"] == "duplicate_key"
    assert (world.events[0].reason, world.events[0].method) == ("duplicate_key", "tools/call")


async def test_what_has_no_usable_id_is_rejected() -> None:
    world = World()
    verdict = await world.inspect(call(request_id=None))
    assert isinstance(verdict, Reject)
    assert (verdict.status, verdict.denial.reason) == (400, "bad_id")
    assert world.events[0].decision == "deny"


@pytest.mark.parametrize("header", ["Content-Encoding", "Content-Type"])
async def test_the_headers_of_the_body_are_read_whatever_their_case(header: str) -> None:
    value = {"Content-Encoding": "gzip", "Content-Type": "application/json; charset=utf-16"}[header]
    assert isinstance(await World().inspect(call(), [(header.upper(), value)]), Answer)


async def test_a_refusal_can_always_be_sent() -> None:
    headers = [("Content-Encoding", "gzip\udcff"), ("Mcp-\udcff", "1"), ("Mcp-\udcff", "2")]
    for some in (headers[:1], headers[1:]):
        reply = only_reply(await World().inspect(call(), some))
        json.dumps(reply, ensure_ascii=False).encode()


STEPS = ["read_body", "check_headers", "decide", "mask", "record", "serialise"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("decision", [replace(ALLOW, redactions=(MASK,)), DENY], ids=["allowed", "denied"])
@pytest.mark.parametrize("error", [BOOM, KeyError("k"), RecursionError(), WireError("x", "y")], ids=repr)
async def test_a_failure_in_any_step_refuses(
    step: str, decision: Decision, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(decision)
    modules = [module for module in (request_module, argument_masking) if hasattr(module, step)]
    for module in modules:
        monkeypatch.setattr(module, step, raiser(error))
    if not modules:
        world.fail[step] = error
    verdict = await world.inspect(call(arguments={"a": "secret"}), [("Mcp-Method", "tools/call")])
    assert isinstance(verdict, Reject if step == "read_body" else Answer)
    assert len(world.gate.in_flight) == 0
    if step != "record":
        assert [event.decision for event in world.events] == ["deny"]


def raiser(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **more: Any) -> Any:
        raise error

    return fail


async def test_a_failure_is_told_as_one_that_may_pass() -> None:
    world = World(fail={"decide": BOOM})
    denial = denial_of(only_reply(await world.inspect(call())))
    assert (denial["reason"], denial["retryable"], denial["rule"]) == ("internal_error", True, None)


async def test_a_call_that_cannot_be_recorded_is_refused_as_such() -> None:
    world = World(fail={"record": AuditUnavailableError("disk full")})
    reply = only_reply(await world.inspect(call()))
    assert denial_of(reply)["reason"] == "audit_unavailable"
    assert denial_of(reply)["retryable"] is True
    assert denial_of(reply)["rule"] is None
    assert "All fine" not in reply["result"]["content"][0]["text"]


async def test_a_denial_that_cannot_be_recorded_is_still_that_denial() -> None:
    world = World(DENY, fail={"record": AuditUnavailableError("disk full")})
    assert denial_of(only_reply(await world.inspect(call())))["reason"] == "policy_denied"


@pytest.mark.parametrize(
    ("method", "how"),
    [
        ("tools/list", "record_later"),
        ("ping", "record_later"),
        ("logging/rotate", "record"),
        ("tools/every/list", "record"),
        ("tasks/result", "record"),
    ],
)
async def test_only_what_is_known_to_do_nothing_goes_before_its_event_is_durable(method: str, how: str) -> None:
    world = World()
    await world.inspect({"jsonrpc": "2.0", "id": 1, "method": method})
    assert [step for step in world.order if step.startswith("record")] == [how]


async def test_a_quiet_message_whose_event_is_not_taken_is_refused() -> None:
    world = World(fail={"record_later": BOOM})
    assert isinstance(await world.inspect({"jsonrpc": "2.0", "id": 1, "method": "ping"}), Answer)


@pytest.mark.parametrize(
    "decision",
    [
        None,
        "allow",
        True,
        12,
        replace(ALLOW, outcome="allow"),
        replace(ALLOW, outcome="perhaps", reason="policy_denied"),
        replace(DENY, reason="made_up"),
        replace(DENY, reason=None),
    ],
    ids=repr,
)
async def test_a_decision_of_an_unknown_kind_refuses(decision: Any) -> None:
    world = World(decision)
    reply = only_reply(await world.inspect(call()))
    assert reply["result"]["isError"] is True
    assert world.events[-1].decision == "deny"


async def test_a_two_phase_tool_called_directly_is_refused() -> None:
    decision = Decision(Outcome.TWO_PHASE, "two_phase", rule="pay", message="Payments")
    assert denial_of(only_reply(await World(decision).inspect(call())))["reason"] == "two_phase_required"


def test_what_policy_decides_on_is_the_tool_or_the_method_with_its_parameters():
    tool = as_call(Message(Kind.REQUEST, call("rm", {"a": 1}), "tools/call", 1), CONTEXT)
    assert (tool.tool, tool.arguments) == ("rm", {"a": 1})
    read = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x"}}
    other = as_call(Message(Kind.REQUEST, read, "resources/read", 1), CONTEXT)
    assert (other.tool, other.method, other.arguments) == (None, "resources/read", {"uri": "x"})
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}
    assert as_call(Message(Kind.RESPONSE, answer, None, 1), CONTEXT).method == "response"
