"""What policy makes of a server's acts; tests/stdio/test_behaviour.py has it with real servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.acts import Act
from proxy.gate.behaviour import Behaviour, denial_of
from proxy.policy.observed import CompiledObserved, ObservedRule
from tests.support.gate_fixture import CONTEXT, World, call

READ = Act("fs.read", "open", "/x")


class Acts:
    """A gate, a behaviour by its rules, and what was asked to be ended."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        self.world = World()
        given = [{"id": "r", "on": "observed", "action": "withhold", "acts": ["fs.read"], **rule} for rule in rules]
        compiled = CompiledObserved(ObservedRule.model_validate(rule) for rule in given)
        self.ended: list[str] = []
        self.behaviour = Behaviour(self.world.gate, CONTEXT, lambda: compiled, self.ended.append)

    async def call(self, number: int) -> Any:
        return (await self.world.forward(call(request_id=number))).in_flight

    def answer(self, in_flight: Any) -> str | None:
        """Return the reason with which the answer of a call is withheld; None where it passes."""
        value = {"jsonrpc": "2.0", "id": in_flight.message.id, "result": {"content": []}}
        passed = self.world.gate.responses.observe(in_flight, value, json.dumps(value).encode())
        return passed["result"].get("_meta", {}).get("mcp-interlock/denial", {}).get("reason")

    def found(self) -> list[tuple[Any, ...]]:
        events = [event for event in self.world.events if event.kind == "behaviour_found"]
        return [(event.rule, event.decision, event.call_id is not None) for event in events]


async def test_an_act_withholds_the_answer_of_its_call_alone() -> None:
    acts = Acts({})
    first, second = await acts.call(1), await acts.call(2)
    acts.behaviour.seen(READ, "call", [first], {})
    acts.behaviour.seen(READ, "call", [first], {})
    assert acts.behaviour.bars_messages
    assert (acts.answer(first), acts.answer(second)) == ("observed_behaviour", None)
    assert acts.found() == [("r", "deny", True)]
    assert not acts.behaviour.bars_messages


async def test_a_guess_withholds_the_answers_of_all_candidates() -> None:
    acts = Acts({})
    first, second = await acts.call(1), await acts.call(2)
    acts.behaviour.seen(READ, "call", [first, second], {})
    assert (acts.answer(first), acts.answer(second)) == ("observed_behaviour", "observed_behaviour")


@pytest.mark.parametrize("rule", [{"action": "tell"}, {"mode": "shadow"}, {"mode": "shadow", "action": "deny"}])
async def test_tell_and_shadow_only_record(rule: dict[str, Any]) -> None:
    acts = Acts(rule)
    made = await acts.call(1)
    acts.behaviour.seen(READ, "call", [made], {})
    assert acts.answer(made) is None
    assert [decision for _, decision, _ in acts.found()] == [None]
    assert (acts.ended, acts.behaviour.holds_answers, acts.behaviour.watches) == ([], False, True)


async def test_deny_ends_the_server() -> None:
    acts = Acts({"action": "deny"})
    made, other = await acts.call(1), await acts.call(2)
    acts.behaviour.seen(READ, "call", [made], {})
    assert acts.ended == ["r"]
    assert (denial_of(made).rule, denial_of(other).rule) == ("r", None)
    assert denial_of(other).reason == "observed_behaviour"


@pytest.mark.parametrize("late", [False, True])
async def test_what_is_done_outside_of_calls_withholds_the_next_answer(late: bool) -> None:
    acts = Acts({})
    over = await acts.call(1)
    assert acts.answer(over) is None
    acts.behaviour.seen(READ, "call" if late else "ambient", [over] if late else [], {})
    acts.behaviour.bar_owed()
    following = await acts.call(2)
    acts.behaviour.bar_owed()
    assert acts.answer(following) == "observed_behaviour"
    last = await acts.call(3)
    acts.behaviour.bar_owed()
    assert acts.answer(last) is None
    assert acts.found() == [("r", None, late)]


async def test_what_cannot_be_known_withholds_all() -> None:
    acts = Acts({})
    made = await acts.call(1)
    acts.behaviour.bar_all("why")
    acts.behaviour.bar_all("why")
    assert acts.answer(made) == "trace_incomplete"
    (event,) = [event for event in acts.world.events if event.kind == "behaviour_found"]
    assert (event.reason, event.decision, event.detail) == ("trace_incomplete", "deny", {"why": "why"})


async def test_no_rules_watch_nothing() -> None:
    acts = Acts()
    acts.behaviour.seen(READ, "call", [await acts.call(1)], {})
    assert (acts.behaviour.watches, acts.behaviour.holds_answers, acts.found()) == (False, False, [])
