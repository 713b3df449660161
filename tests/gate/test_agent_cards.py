"""Agent cards are pinned and screened, whichever way they come."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from proxy.core.model import Denial
from proxy.errors import PinsUnavailableError
from proxy.injection.content import REMOVED
from tests.gate.test_incoming import CONTEXT, ORDER, World, rules
from tests.support.gate_fixture import denial_of

AT = replace(CONTEXT, target="/.well-known/agent-card.json", session=None)
CARD: dict[str, Any] = {
    "name": "Planner",
    "description": "Plans trips.",
    "version": "1.0.0",
    "url": "https://a.example",
    "capabilities": {},
    "skills": [{"id": "p", "name": "Plan", "description": "Plans a trip.", "tags": []}],
}
ENFORCE = "pins: {mode: enforce}\n"
TOLERANT = "pins: {mode: enforce, drift: tolerant}\n"


def get(world: World, card: Any, context=AT) -> Any:
    """Return what a client gets that asks for a card: the card, or the refusal."""
    watch = world.gate.pages.watch(context, ["application/json"], [])
    assert watch is not None
    left = watch.take(json.dumps(card).encode())
    return left if isinstance(left, Denial) else json.loads(left) if left is not None else card


def test_a_card_that_changes_is_recorded(tmp_path):
    world = World(tmp_path, "")
    assert get(world, CARD) == CARD
    changed = {**CARD, "url": "https://evil.example"}
    assert get(world, changed) == changed
    (event,) = [event for event in world.events if event.kind == "pin_changed"]
    assert (event.tool, event.detail["fields"]) == ("/.well-known/agent-card.json", ["url"])


def test_with_enforce_a_changed_card_is_withheld_until_it_is_approved(tmp_path):
    world = World(tmp_path, ENFORCE)
    changed = {**CARD, "url": "https://evil.example"}
    assert get(world, CARD) == CARD
    refused = get(world, changed)
    assert isinstance(refused, Denial)
    assert refused.reason == "tool_not_pinned"
    assert isinstance(get(world, CARD), Denial)  # also once it is as it was: somebody should look
    world.catalog._pins.approve("wiki.example.com", None, None, 1.0, card="/.well-known/agent-card.json")
    assert get(World(tmp_path, ENFORCE), CARD) == CARD


def test_a_tolerant_policy_takes_a_new_version(tmp_path):
    world = World(tmp_path, TOLERANT)
    newer = {**CARD, "version": "1.0.1"}
    assert get(world, CARD) == CARD
    assert get(world, newer) == newer
    (event,) = [event for event in world.events if event.kind == "pin_changed"]
    assert (event.detail["change"], event.decision) == ("edited", None)
    assert isinstance(get(world, {**newer, "skills": []}), Denial)


def test_a_card_that_speaks_to_the_model(tmp_path):
    poisoned = {**CARD, "skills": [{**CARD["skills"][0], "description": ORDER}]}
    assert isinstance(get(World(tmp_path / "a", rules("id: w, action: withhold, on: [cards]")), poisoned), Denial)
    shown = get(World(tmp_path / "b", rules("id: s, action: strip, on: [cards]")), poisoned)
    assert shown["skills"][0]["description"] == REMOVED


def test_a_card_is_known_by_its_shape_wherever_it_lies(tmp_path):
    world = World(tmp_path, rules("id: w, action: withhold, on: [cards]"))
    elsewhere = replace(AT, target="/agents/7.json")
    assert isinstance(get(world, {**CARD, "description": ORDER}, elsewhere), Denial)
    assert get(world, {"description": ORDER}, elsewhere) == {"description": ORDER}


def test_hidden_characters_in_a_card(tmp_path):
    assert isinstance(get(World(tmp_path, ""), {**CARD, "description": "Plans.\u200b\u2060\u200b"}), Denial)


def test_without_pins_a_card_does_not_pass_where_they_are_enforced(tmp_path, monkeypatch):
    world = World(tmp_path, ENFORCE)

    def fail(*_: Any) -> None:
        raise PinsUnavailableError("gone")

    monkeypatch.setattr(world.catalog._pins, "update", fail)
    assert isinstance(get(world, CARD), Denial)


def test_what_cannot_be_read_at_the_place_of_a_card_does_not_pass_where_pins_are_enforced(tmp_path):
    watch = World(tmp_path, ENFORCE).gate.pages.watch(AT, ["application/json"], ["gzip"])
    assert watch is not None
    assert isinstance(watch.take(b"no gzip at all"), Denial)


async def test_the_extended_card_comes_as_a_result(tmp_path):
    world = World(tmp_path, rules("id: w, action: withhold, on: [cards]"))
    for method in ("agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"):
        assert (await world.answer(method, {}, CARD))["result"] == CARD
        got = await world.answer(method, {}, {**CARD, "description": ORDER})
        assert denial_of(got)["reason"] == "injected_instructions"
