"""What weighs a call: each part that has a say in it is asked, and no answer outlives the policy that gave it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from proxy.core.model import Answer, Call, Decision, Hints, Outcome
from proxy.gate.tool_catalog import Objection
from proxy.policy.decide import CompiledPolicy
from proxy.policy.load import load_policy
from tests.support.gate_fixture import ALLOW, CONTEXT, World, call, denial_of, only_reply

if TYPE_CHECKING:
    from pathlib import Path

READS = Hints(read_only=True, destructive=False)


class Catalog:
    """A catalog that says one thing of every tool."""

    incoming: Any = None

    def __init__(self, objection: Objection | None = None, error: Exception | None = None) -> None:
        self._objection = objection
        self._error = error

    def look_up(self, *_: Any) -> tuple[Hints, Objection | None]:
        if self._error is not None:
            raise self._error
        return READS, self._objection


def world_with(catalog: Catalog) -> World:
    from proxy.gate.gate import Gate

    world = World()
    world.pins = None  # type: ignore[attr-defined]
    world.gate = Gate(policy=lambda: world, redactor=world, sink=world, catalog=catalog)  # type: ignore[arg-type, return-value]
    return world


async def test_a_call_is_decided_by_what_the_server_said_of_the_tool() -> None:
    world = world_with(Catalog())
    verdict = await world.forward(call())
    assert [each.hints for each in world.calls] == [READS]
    assert verdict.in_flight.call.hints == READS


async def test_an_objection_of_the_pins_refuses_what_policy_allows() -> None:
    world = world_with(Catalog(Objection("tool_not_pinned", "It is new.")))
    denial = denial_of(only_reply(await world.inspect(call())))
    assert (denial["reason"], denial["rule"]) == ("tool_not_pinned", None)
    assert "record" in world.order


async def test_pins_that_cannot_be_read_refuse() -> None:
    world = world_with(Catalog(error=OSError("no pins")))
    assert denial_of(only_reply(await world.inspect(call())))["reason"] == "internal_error"
    assert "decide" not in world.order


@pytest.mark.parametrize("decision", [None, "allow", replace(ALLOW, outcome="maybe")])  # type: ignore[arg-type]
async def test_what_is_no_decision_and_no_outcome_that_is_known_refuses(decision: Any) -> None:
    world = World(decision=decision)
    assert isinstance(await world.inspect(call()), Answer)


class Asking:
    """Incoming rules that say no wherever they are asked, and count how often they are."""

    def __init__(self) -> None:
        self.asked_for: list[tuple[str, ...]] = []

    def asked(self, *where: str) -> tuple[()]:
        self.asked_for.append(where)
        return ()

    def __bool__(self) -> bool:
        return True


async def test_incoming_rules_are_asked_once_for_each_kind_of_call_and_anew_where_they_change() -> None:
    first, second = Asking(), Asking()
    world = World(incoming=first)
    for number in range(3):
        await world.forward(call(request_id=number))
    await world.forward(call("other", request_id=4))
    where = [("arguments", CONTEXT.server, "bot", tool) for tool in ("t", "other")]
    assert first.asked_for == where
    world.incoming = second
    await world.forward(call(request_id=5))
    assert second.asked_for == where[:1]


def test_a_plan_answers_for_a_kind_of_call_what_the_parts_of_the_policy_answer(tmp_path: Path) -> None:
    """The short way (one answer by the names of a call) and the long way (every part asked) say the same."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        "version: 1\ndefault: allow\n"
        "limits:\n  - {id: few, tools: [pay_*], count: 3, within: 1h, per: agent, action: report}\n"
        "labels:\n  - {id: in, tools: [fetch], gives: untrusted}\n"
        "flows:\n  - {id: out, from: untrusted, to: {tools: [send]}, action: deny}\n"
    )
    policy = load_policy(file)
    for tool in ("pay_now", "fetch", "send", "search", None):
        for method in ("tools/call", "resources/read"):
            _compare(policy, Call(method, "s", "a", tool, {}))


def _compare(policy: CompiledPolicy, asked: Call) -> None:
    plan = policy.plan_for(asked)
    assert plan is policy.plan_for(replace(asked, arguments={"other": 1}))
    assert plan.limited == bool(policy.limits.fitting(asked))
    assert policy.flows is not None
    rules = [each.rule for each in policy.rules_for(asked)]
    assert plan.flows == policy.flows.for_call(asked, rules)
    assert isinstance(plan.otherwise, Decision)
    assert plan.otherwise.outcome is Outcome.ALLOW
