"""Calls of other agents: in JSON-RPC and in plain HTTP, decided and masked alike."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.model import Answer, Forward, Pass, Reject
from proxy.gate.a2a_rest import RestRouter, router_for
from proxy.gate.router import ResponseRouter
from tests.gate.test_incoming import CONTEXT, KEY, ORDER, World, rules
from tests.support.flow_fixture import open_world

AT = replace(CONTEXT, target="/v1/message:send", session=None)
DENY = """rules:
  - {id: no-agents, action: deny, methods: [message/send], when: {arg: "**.text", contains: forbidden}}
  - {id: scrub, action: redact, detectors: [secrets]}
"""
AGENTS = """
version: 1
default: allow
labels: [{id: peers, servers: [peer], methods: ["*"], gives: private}]
flows: [{id: f, from: private, to: {tools: ["*"]}, by: content}]
"""
TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"


def said(text: str) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}


async def send(world: World, body: Any, context=AT) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await world.gate.requests.inspect(data, context)


async def test_a_message_is_forwarded_as_it_was_decided_on(tmp_path):
    world = World(tmp_path, DENY)
    verdict = await send(world, b' {"message" : {"parts":[{"text":"hello"}]} } ')
    assert isinstance(verdict, Forward)
    assert verdict.encoded == b'{"message":{"parts":[{"text":"hello"}]}}'
    (event,) = [event for event in world.events if event.kind == "decided"]
    assert (event.method, event.decision, event.arguments) == (
        "message/send",
        "allow",
        {"message": {"parts": [{"text": "hello"}]}},
    )


async def test_a_refusal_is_one_of_http(tmp_path):
    verdict = await send(World(tmp_path, DENY), said("a forbidden word"))
    assert isinstance(verdict, Reject)
    assert (verdict.status, verdict.denial.reason, verdict.denial.rule) == (403, "policy_denied", "no-agents")


async def test_the_same_rule_holds_in_json_rpc(tmp_path):
    message = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": said("a forbidden word")}
    verdict = await send(World(tmp_path, DENY), message, replace(AT, target="/a2a"))
    assert isinstance(verdict, Answer)
    assert verdict.replies[0]["error"]["data"]["rule"] == "no-agents"


async def test_secrets_are_masked_on_their_way_out_and_back(tmp_path):
    world = World(tmp_path, DENY)
    verdict = await send(world, said(f"the key is {TOKEN}"))
    assert isinstance(verdict, Forward)
    assert TOKEN.encode() not in (verdict.encoded or b"")
    router = router_for(world.gate.responses, AT, verdict.in_flight, KEY)
    assert isinstance(router, RestRouter)
    passed = router.rewrite_whole(json.dumps(said(f"got {TOKEN}")).encode())
    assert passed is not None
    assert TOKEN.encode() not in passed[0]
    assert [event.outcome for event in world.events if event.kind == "completed"] == ["done"]


async def test_an_answer_to_a_message_in_json_rpc_is_read_as_one(tmp_path):
    world = World(tmp_path, DENY)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t", "arguments": {}}}
    verdict = await world.gate.requests.inspect(json.dumps(message).encode(), CONTEXT)
    assert type(router_for(world.gate.responses, CONTEXT, verdict.in_flight, KEY)) is ResponseRouter


async def test_what_an_agent_answers_is_labelled(tmp_path):
    """A label is stored before the answer in plain HTTP is passed on."""
    world = open_world(tmp_path, AGENTS)
    context = world.context("peer", target="/v1/message:send")
    verdict = await world.gate.requests.inspect(json.dumps(said("hello")).encode(), context)
    assert isinstance(verdict, Forward)
    router = router_for(world.gate.responses, context, verdict.in_flight, KEY)
    assert router.rewrite_whole(json.dumps(said("the launch of the new turbine is in October")).encode()) is None
    assert [mark.labels for mark in router.marks] == [("private",)]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"a":1,"a":2}', b"a=1", b"\xff\xfe{\0}\0"])
async def test_a_body_that_is_not_one_strict_object_is_refused(tmp_path, body):
    assert isinstance(await send(World(tmp_path, DENY), body), Reject)


async def test_other_paths_are_left_alone(tmp_path):
    assert isinstance(await send(World(tmp_path, DENY), said("forbidden"), replace(AT, target="/v1/x")), Pass)


async def test_an_answer_that_cannot_be_read_does_not_pass_where_it_would_be_masked(tmp_path):
    world = World(tmp_path, DENY)
    verdict = await send(world, said("hello"))
    passed = router_for(world.gate.responses, AT, verdict.in_flight, KEY).rewrite_whole(b"{nonsense")
    assert passed is not None
    assert b"nonsense" not in passed[0]


async def test_every_event_of_a_stream_is_screened(tmp_path):
    world = World(tmp_path, rules("id: s, action: strip"))
    verdict = await send(world, said("hello"), replace(AT, target="/message:stream"))
    router = router_for(world.gate.responses, AT, verdict.in_flight, KEY)
    assert router.rewrite(json.dumps(said("working")).encode()) is None
    for _ in range(2):
        passed = router.rewrite(json.dumps(said(ORDER)).encode())
        assert passed is not None
        assert b"evil" not in passed[0]


async def test_a_withheld_answer_is_an_error_of_http(tmp_path):
    world = World(tmp_path, rules("id: w, action: withhold"))
    verdict = await send(world, said("hello"))
    passed = router_for(world.gate.responses, AT, verdict.in_flight, KEY).rewrite_whole(
        json.dumps(said(ORDER)).encode()
    )
    assert passed is not None
    assert json.loads(passed[0])["error"]["details"][0]["reason"] == "injected_instructions"


async def test_where_the_default_is_deny_a_message_needs_a_rule(tmp_path):
    world = World(tmp_path, "")
    (tmp_path / "policy.yaml").write_text("version: 1\ndefault: deny\n")
    from proxy.policy.load import load_policy

    world.policy = load_policy(tmp_path / "policy.yaml")
    assert isinstance(await send(world, said("hello")), Reject)
    assert isinstance(await world.send("GetTask", {"id": "t"}), Forward)
