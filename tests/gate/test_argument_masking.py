"""What a message carries is masked as the decision says, or the message is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.gate_fixture import ALLOW, MASK, World, call, denial_of, only_reply


async def test_secrets_are_masked_before_they_leave_and_before_they_are_recorded() -> None:
    world = World(replace(ALLOW, redactions=(MASK,)))
    verdict = await world.forward(call(arguments={"a": ["secret"]}))
    assert verdict.message.params["arguments"] == {"a": ["***"]}
    assert b"secret" not in await world.gate.requests.encode(verdict)
    assert world.events[0].arguments == {"a": ["***"]}
    assert [finding.detector for finding in world.events[0].redactions] == ["secrets.test"]


async def test_what_only_the_record_masks_is_told_apart() -> None:
    world = World(ALLOW)
    verdict = await world.forward(call(arguments={"a": ["secret"]}))
    assert verdict.message.params["arguments"] == {"a": ["secret"]}
    (found,) = world.events[0].redactions
    assert (found.path, found.record_only) == ("arguments.$", True)
    reporting = World(replace(ALLOW, redactions=(replace(MASK, action="report"),)))
    await reporting.forward(call(arguments={"a": ["secret"]}))
    assert [found.record_only for found in reporting.events[0].redactions] == [False]


async def test_secrets_are_never_recorded_even_where_no_rule_asks() -> None:
    world = World()
    verdict = await world.forward(call(arguments={"a": "secret"}))
    assert verdict.message.params["arguments"] == {"a": "secret"}
    assert world.events[0].arguments == {"a": "***"}


@pytest.mark.parametrize("on", ["arguments", "result"])
async def test_a_redaction_looks_only_where_it_says(on: str) -> None:
    world = World(replace(ALLOW, redactions=(replace(MASK, on=frozenset({on})),)))
    verdict = await world.forward(call(arguments={"a": "secret"}))
    observed = world.gate.responses.observe(verdict.in_flight, {"id": 7, "result": {"b": "secret"}}, b"raw")
    assert verdict.message.params["arguments"]["a"] == ("***" if on == "arguments" else "secret")
    assert observed["result"]["b"] == ("***" if on == "result" else "secret")


async def test_a_secret_that_may_not_pass_refuses_the_call_in_the_name_of_its_rule() -> None:
    world = World(replace(ALLOW, redactions=(replace(MASK, action="deny"),)))
    reply = only_reply(await world.inspect(call(arguments={"a": "secret"})))
    assert (denial_of(reply)["reason"], denial_of(reply)["rule"]) == ("secret_found", "scrub")
    assert (world.events[0].reason, world.events[0].rule) == ("secret_found", "scrub")
    assert "secret" not in json.dumps(world.events[0].arguments)


async def test_a_report_changes_nothing_and_notes_what_was_found() -> None:
    world = World(replace(ALLOW, redactions=(replace(MASK, action="report"),)))
    verdict = await world.forward(call(arguments={"a": "secret"}))
    response = {"jsonrpc": "2.0", "id": 7, "result": {"b": "secret"}}
    assert verdict.message.value == call(arguments={"a": "secret"})
    assert world.gate.responses.observe(verdict.in_flight, response, b"raw") is response
    assert [len(event.redactions) for event in world.events] == [1, 1]


@pytest.mark.parametrize(
    "mask_as",
    [
        lambda _: None,
        lambda _: [],
        lambda value: {**value, "name": "other"} if "name" in value else value,
        lambda value: {**value, "arguments": "***"} if "name" in value else value,
        lambda value: {**value, "x": "\ud800"} if "name" in value else value,
        lambda value: {**value, "x": float("nan")} if "name" in value else value,
    ],
    ids=["nothing", "a list", "another tool", "other arguments", "half a character", "not a number"],
)
async def test_masking_that_breaks_the_message_refuses_it(mask_as: Any) -> None:
    world = World(replace(ALLOW, redactions=(MASK,)), mask_as=mask_as)
    assert denial_of(only_reply(await world.inspect(call())))["reason"] == "internal_error"
