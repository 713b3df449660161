"""A server's requests and notifications under policy: refused by rules, on every stream, and told to both ends."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Answer, Call, Context, Decision, Forward, InFlightCall
from proxy.gate.gate import Gate
from proxy.gate.router import ResponseRouter, SharedStream
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile
from proxy.redact.mask import Masker
from tests.support.gate_fixture import CONTEXT, World, call, denial_of, only_reply

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
RULES = [
    {"id": "no-sampling", "action": "deny", "methods": ["sampling/*"]},
    {"id": "no-pages", "action": "deny", "methods": ["elicitation/create"], "when": {"arg": "mode", "equals": "url"}},
    {"id": "no-words", "action": "deny", "methods": ["response"], "when": {"arg": "result.word", "equals": "no"}},
    {"id": "no-logs", "action": "deny", "methods": ["notifications/message"]},
    {"id": "scrub", "action": "redact", "detectors": ["secrets"]},
]
SAMPLE = {"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {"messages": []}}
INSIDE = {"a": {"method": "sampling/createMessage", "params": {"messages": []}}}


class Judged(World):
    """A gate with a real policy and a real redactor."""

    def __init__(self, rules: list[dict[str, Any]] = RULES, default: str = "allow") -> None:
        file = PolicyFile.model_validate({"version": 1, "default": default, "rules": rules})
        self.policy = CompiledPolicy(file.rules, default=default)
        super().__init__()
        redactor = Masker(b"a key for tests alone")
        self.gate = Gate(policy=lambda: self.policy, redactor=redactor, sink=self, clock=lambda: self.now)

    def router(self, context: Context = CONTEXT, in_flight: InFlightCall | None = None) -> ResponseRouter:
        return ResponseRouter(self.gate.responses, context, in_flight)


def rewrite(router: ResponseRouter, value: Any) -> Any:
    payloads = router.rewrite(json.dumps(value).encode())
    return None if payloads is None else [json.loads(payload) for payload in payloads]


async def test_a_refused_request_comes_back_to_the_server_as_an_error_of_its_own_id() -> None:
    world = Judged()
    (ping,) = rewrite(world.router(), SAMPLE)
    assert ping["method"] == "ping"
    assert "sampling" not in json.dumps(ping)
    forward = await world.forward({"jsonrpc": "2.0", "id": ping["id"], "result": {}})
    answer = forward.message.value
    assert (answer["id"], answer["error"]["code"]) == (5, 40301)
    assert answer["error"]["data"]["rule"] == "no-sampling"
    refused = next(event for event in world.events if event.decision == "deny")
    assert (refused.method, refused.rule, refused.detail) == (SAMPLE["method"], "no-sampling", {"sent_by": "server"})


async def test_an_answer_to_the_ping_that_says_anything_else_brings_the_refusal_all_the_same() -> None:
    world = Judged([*RULES, {"id": "no-answers", "action": "deny", "methods": ["response"]}])
    (ping,) = rewrite(world.router(), SAMPLE)
    for answer in ({"result": {"role": "assistant", "content": SECRET}}, {"error": {"code": 1, "message": "no"}}):
        forward = await world.forward({"jsonrpc": "2.0", "id": ping["id"], **answer})
        assert forward.message.value["error"]["data"]["rule"] == "no-sampling"


async def test_an_id_that_only_looks_sealed_is_an_answer_like_any() -> None:
    forward = await Judged().forward({"jsonrpc": "2.0", "id": "ilk2:AAAA", "result": {"text": SECRET}})
    assert forward.message.id == "ilk2:AAAA"
    assert SECRET not in json.dumps(forward.message.value)


async def test_a_refused_notification_is_left_out() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}
    assert rewrite(Judged().router(), message) == []


@pytest.mark.parametrize("more", [{"result": {}}, {"error": {}}, {"Method": "x"}])
async def test_a_request_cannot_pass_for_an_answer(more: dict[str, Any]) -> None:
    (passed,) = rewrite(Judged().router(), {**SAMPLE, **more})
    assert passed["method"] == "ping"


async def test_a_method_that_only_lenient_clients_find_is_refused() -> None:
    message = {"jsonrpc": "2.0", "id": 5, "Method": "sampling/createMessage", "params": {}}
    (passed,) = rewrite(Judged().router(), message)
    assert passed["method"] == "ping"


async def test_the_default_refuses_nothing_that_a_server_sends() -> None:
    world = Judged([], default="deny")
    assert rewrite(world.router(), SAMPLE) is None


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "input_required", "inputRequests": INSIDE},
        {"resultType": "complete", "taskId": "t", "status": "input_required", "inputRequests": INSIDE},
        {"task": {"taskId": "t", "status": "input_required", "inputRequests": INSIDE}},
    ],
)
async def test_a_request_inside_a_result_withholds_the_result(result: dict[str, Any]) -> None:
    world = Judged()
    in_flight = (await world.forward(call(request_id=1))).in_flight
    (refused,) = rewrite(world.router(in_flight=in_flight), {"jsonrpc": "2.0", "id": 1, "result": result})
    assert refused["result"]["isError"] is True
    assert denial_of(refused)["rule"] == "no-sampling"
    assert "inputRequests" not in json.dumps(refused)
    assert in_flight.closed
    assert world.events[-1].outcome == "withheld"


async def test_a_request_inside_an_answer_that_nobody_waits_for_is_withheld() -> None:
    value = {"jsonrpc": "2.0", "id": 99, "result": {"inputRequests": INSIDE}}
    (refused,) = rewrite(Judged().router(), value)
    assert denial_of(refused)["rule"] == "no-sampling"


async def test_a_request_inside_a_notification_is_left_out() -> None:
    params = {"taskId": "t", "status": "input_required", "inputRequests": INSIDE}
    assert rewrite(Judged().router(), {"jsonrpc": "2.0", "method": "notifications/tasks", "params": params}) == []


async def test_a_condition_sees_the_parameters_of_the_request_inside() -> None:
    world = Judged()
    for mode, passes in (("form", True), ("url", False)):
        asked = {"a": {"method": "elicitation/create", "params": {"mode": mode, "message": "?"}}}
        in_flight = (await world.forward(call(request_id=mode))).in_flight
        value = {"jsonrpc": "2.0", "id": mode, "result": {"resultType": "input_required", "inputRequests": asked}}
        assert (rewrite(world.router(in_flight=in_flight), value) is None) is passes


@pytest.mark.parametrize(
    ("answers", "rule"),
    [
        ({"a": {"word": "no"}}, "no-words"),
        ([{"word": "no"}], "no-words"),
        ({"a": {"word": "yes"}, "b": {"role": "assistant", "content": {}, "model": "m"}}, "no-sampling"),
        ({"a": {"action": "accept", "mode": "url"}}, "no-pages"),
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read", "tasks/update"])
async def test_an_answer_inside_a_request_is_refused_as_one_on_its_own(answers: Any, rule: str, method: str) -> None:
    params = {"name": "t", "uri": "x://y", "taskId": "t", "inputResponses": answers}
    verdict = await Judged().inspect({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert denial_of(only_reply(verdict))["rule"] == rule


async def test_answers_inside_a_request_that_no_rule_refuses_pass_masked() -> None:
    params = {"inputResponses": {"a": {"action": "accept", "content": {"word": f"use {SECRET}"}}}}
    forward = await Judged().forward(call(request_id=1, **params))
    assert SECRET not in json.dumps(forward.message.value)


async def test_a_clients_error_is_masked() -> None:
    error = {"code": -1, "message": f"cannot use {SECRET}"}
    forward = await Judged().forward({"jsonrpc": "2.0", "id": 1, "error": error})
    assert SECRET not in json.dumps(forward.message.value)


MESSAGES = [
    {"jsonrpc": "2.0", "id": 5, "method": "elicitation/create", "params": {"message": f"Is {SECRET} yours?"}},
    {"jsonrpc": "2.0", "id": 5, "method": "roots/list", "params": {"_meta": {"x": SECRET}}},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "message": SECRET}},
    {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": {"taskId": "t", "statusMessage": SECRET}},
    {"jsonrpc": "2.0", "method": "notifications/tasks", "params": {"taskId": "t", "result": {"content": SECRET}}},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message["method"])
@pytest.mark.parametrize("transport", ["http", "sse", "websocket", "stdio"])
async def test_what_comes_beside_answers_is_masked_on_every_stream(message: Any, transport: Any) -> None:
    world, context = Judged(), replace(CONTEXT, transport=transport)
    router = world.router(context)
    if transport == "stdio":
        router = ResponseRouter(world.gate.responses, context, shared=SharedStream())
    (masked,) = rewrite(router, message)
    assert SECRET not in json.dumps(masked)
    assert masked.get("id") == message.get("id")


async def test_what_another_protocol_sends_as_json_is_left_alone() -> None:
    foreign = {"event": "message", "text": SECRET, "method": "sampling/createMessage"}
    for context in (replace(CONTEXT, session=None), replace(CONTEXT, transport="websocket")):
        assert rewrite(Judged().router(context), foreign) is None


async def test_a_task_is_masked_by_the_rules_of_its_call_and_an_unknown_one_by_all() -> None:
    only = {"id": "scrub", "action": "redact", "tools": ["t"], "detectors": ["secrets"], "on": ["result"]}
    world = Judged([only])
    for tool, masks in (("t", True), ("u", False)):
        made = (await world.forward(call(tool, request_id=tool))).in_flight
        created = {"jsonrpc": "2.0", "id": tool, "result": {"resultType": "task", "taskId": f"task of {tool}"}}
        assert rewrite(world.router(in_flight=made), created) is None
        assert await masks_task(world, f"task of {tool}") is masks
    assert await masks_task(world, "unknown") is True


async def masks_task(world: Judged, task_id: str) -> bool:
    """Return whether the result of a task is masked, asked for on a connection that knows nothing of it."""
    context = replace(CONTEXT, session=None)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": task_id}}
    in_flight = (await world.forward(asked, context=context)).in_flight
    result = {"taskId": task_id, "status": "completed", "result": {"content": [{"type": "text", "text": SECRET}]}}
    passed = rewrite(world.router(context, in_flight), {"jsonrpc": "2.0", "id": 1, "result": result})
    return passed is not None and SECRET not in json.dumps(passed)


async def test_an_opaque_value_passes_back_to_the_server_that_issued_it_and_to_no_other() -> None:
    state = (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIn0."
        "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
    )
    world = Judged()
    again = call(request_id=2, requestState=state)
    assert state not in json.dumps((await world.forward(again)).message.value), "a secret that no server gave"
    in_flight = (await world.forward(call(request_id=1))).in_flight
    asked = {"resultType": "input_required", "requestState": state, "inputRequests": {}}
    assert rewrite(world.router(in_flight=in_flight), {"jsonrpc": "2.0", "id": 1, "result": asked}) is None
    passed = await world.forward({**again, "id": 3})
    assert passed.message.params["requestState"] == state
    elsewhere = await world.forward({**again, "id": 4}, context=replace(CONTEXT, server="elsewhere"))
    assert state not in json.dumps(elsewhere.message.value)


class Raising:
    """A policy that fails on what servers send."""

    def __init__(self, inner: CompiledPolicy) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def decide(self, asked: Call) -> Decision:
        if asked.method in ("tools/call", "tasks/get"):
            return self._inner.decide(asked)
        raise RuntimeError("boom")


async def test_what_cannot_be_decided_reaches_nobody() -> None:
    world = Judged([])
    in_flight = (await world.forward(call(request_id=1))).in_flight
    world.policy = Raising(world.policy)  # type: ignore[assignment]
    assert rewrite(world.router(), SAMPLE) == []
    value = {"jsonrpc": "2.0", "id": 1, "result": {"inputRequests": INSIDE}}
    (withheld,) = rewrite(world.router(in_flight=in_flight), value)
    assert denial_of(withheld)["reason"] == "internal_error"
    verdict = await world.inspect(call(request_id=2, inputResponses={"a": {"action": "accept"}}))
    assert isinstance(verdict, Answer)
    assert not isinstance(verdict, Forward)
