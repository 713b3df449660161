"""Fingerprints of tools, and what a page of a tool list changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import PinsUnavailableError
from proxy.gate import tool_pins
from proxy.gate.tool_pins import (
    INSTRUCTIONS,
    Page,
    ServerPins,
    ToolChange,
    approve,
    from_json,
    print_tool,
    take_instructions,
    take_page,
    to_json,
)

TOOL = {
    "name": "echo",
    "title": "Echo",
    "description": "Gives it back.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "icons": [{"src": "https://example.com/i.png"}],
    "_meta": {"x": 1},
}


def named(name: str, description: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description or f"Does {name}.", "inputSchema": {}, **more}


def page(*tools: dict[str, Any], continued: bool = False, last: bool = True) -> Page:
    return Page([(tool["name"], print_tool(tool)) for tool in tools], continued, last)


def take(known: ServerPins | None, *tools: dict[str, Any], now: float = 100.0, adopt: bool = False, **more: bool):
    return take_page(known, page(*tools, **more), adopt=adopt, now=now)


@pytest.mark.parametrize("field", list(TOOL))
def test_a_change_in_any_field_changes_the_digest_and_is_named(field: str) -> None:
    before, after = print_tool(TOOL), print_tool({**TOOL, field: "other"})
    assert before.digest != after.digest
    assert tool_pins.changed_fields(before, after) == (field,)


def test_a_field_that_comes_or_goes_is_named() -> None:
    bare = {key: value for key, value in TOOL.items() if key != "annotations"}
    assert tool_pins.changed_fields(print_tool(bare), print_tool(TOOL)) == ("annotations",)
    assert tool_pins.changed_fields(print_tool(TOOL), print_tool(bare)) == ("annotations",)


@given(st.permutations(list(TOOL)))
def test_the_order_of_keys_does_not_count(order: list[str]) -> None:
    assert print_tool({key: TOOL[key] for key in order}).digest == print_tool(TOOL).digest


def test_only_the_name_differs_between_prints_of_a_renamed_tool() -> None:
    renamed = print_tool({**TOOL, "name": "other"})
    assert renamed.body == print_tool(TOOL).body
    assert renamed.digest != print_tool(TOOL).digest


def test_a_long_definition_is_not_kept_but_still_printed() -> None:
    made = print_tool(named("a", "x" * tool_pins.MAX_DEFINITION))
    assert made.definition is None
    assert made.digest != print_tool(named("a", "y" * tool_pins.MAX_DEFINITION)).digest


def test_the_first_list_is_taken_on_trust_over_all_its_pages() -> None:
    known, changes = take(None, named("a"), last=False)
    assert [(change.tool, change.what) for change in changes] == [("a", "pinned")]
    known, _ = take(known, named("b"), continued=True, last=False)
    known, _ = take(known, named("c"), continued=True)
    assert all(pin.stands for pin in known.tools.values())
    known, changes = take(known, named("d"), continued=True)
    assert [change.what for change in changes] == ["new"]
    assert not known.tools["d"].stands


def test_a_first_page_seen_again_is_not_part_of_the_first_list() -> None:
    known, _ = take(None, named("a"), last=False)
    known, changes = take(known, named("a"), named("b"), last=False)
    assert [(change.tool, change.what) for change in changes] == [("b", "new")]
    assert known.listing


def test_a_first_list_does_not_go_on_for_ever() -> None:
    known, _ = take(None, named("a"), last=False)
    late = 100.0 + tool_pins.FIRST_LIST_SECONDS
    known, changes = take(known, named("b"), continued=True, last=False, now=late)
    assert [change.what for change in changes] == ["new"]


def test_a_changed_tool_on_a_page_of_the_first_list_is_a_change() -> None:
    known, _ = take(None, named("a"), last=False)
    known, changes = take(known, named("a", "Another."), continued=True)
    assert changes == (ToolChange("a", "changed", ("description",)),)
    assert not known.tools["a"].stands


def test_what_was_seen_before_changes_nothing() -> None:
    known, _ = take(None, named("a"), named("b"))
    assert take(known, named("b"), named("a")) == (known, ())
    assert take(known, named("a"))[0] is known, "a tool that a page lacks is not gone"
    assert take(known)[0] is known


def test_a_change_is_told_once_and_stays_one_when_the_server_goes_back() -> None:
    known, _ = take(None, named("a"))
    known, changes = take(known, named("a", "Another."))
    assert changes == (ToolChange("a", "changed", ("description",)),)
    known, changes = take(known, named("a", "Another."))
    assert changes == ()
    known, changes = take(known, named("a"))
    assert changes == ()
    assert not known.tools["a"].stands


def test_two_entries_of_one_name_in_the_first_list_are_a_change() -> None:
    known, changes = take(None, named("a"), named("a", "Another."))
    assert [change.what for change in changes] == ["pinned", "changed"]
    assert not known.tools["a"].stands


def test_the_same_tool_under_another_name_is_a_rename() -> None:
    known, _ = take(None, named("a", "Same."))
    known, changes = take(known, named("b", "Same."))
    assert [(change.what, change.former) for change in changes] == [("renamed", "a")]
    assert not known.tools["b"].stands


def test_a_tool_renamed_after_it_changed_is_still_known_by_what_was_approved() -> None:
    known, _ = take(None, named("a", "Same."))
    known, _ = take(known, named("a", "Another."))
    assert take(known, named("b", "Same."))[1][0].former == "a"


def test_adopting_takes_everything_as_it_comes() -> None:
    known, _ = take(None, named("a"))
    known, _ = take(known, named("a", "Another."))
    known, changes = take(known, named("a", "Third."), named("b"), adopt=True)
    assert [change.what for change in changes] == ["pinned", "pinned"]
    assert all(pin.stands for pin in known.tools.values())
    assert take(known, named("a", "Third."), adopt=True)[0] is known


def test_more_tools_than_can_be_pinned_are_refused() -> None:
    with pytest.raises(PinsUnavailableError, match="more than 2000 tools"):
        take(None, *(named(f"t{number}") for number in range(tool_pins.MAX_TOOLS + 1)))


def test_approving_one_tool_leaves_the_others() -> None:
    known, _ = take(None, named("a"))
    known, _ = take(known, named("a", "Another."), named("b"))
    approved = tool_pins.approve(known, "b", 200.0)
    assert approved is not None
    assert (approved.tools["a"].stands, approved.tools["b"].stands) == (False, True)
    assert approved.approvals == known.approvals + 1


def test_approving_takes_the_tool_as_last_seen() -> None:
    known, _ = take(None, named("a"))
    known, _ = take(known, named("a", "Another."))
    approved = tool_pins.approve(known, None, 200.0)
    assert approved is not None
    assert take(approved, named("a", "Another.")) == (approved, ())
    assert take(approved, named("a"))[1][0].what == "changed"


def test_pins_survive_being_written_down() -> None:
    known, _ = take(None, TOOL, named("a\ud800"), last=False)
    known, _ = take(known, named("a\ud800", "h\u200bi"), named("new"))
    assert tool_pins.from_json(tool_pins.to_json(known)) == known


@pytest.mark.parametrize(
    "value", [{}, [], None, {"first_seen": 1, "listing": False, "approvals": 0, "tools": {"a": {"seen": {}}}}]
)
def test_what_is_not_pins_is_not_read_as_pins(value: Any) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError, ValueError)):
        tool_pins.from_json(value)


def test_instructions_are_pinned_at_the_first_handshake_and_do_not_cost_the_first_list_its_trust() -> None:
    said, other = print_tool({"instructions": "A."}), print_tool({"instructions": "B."})
    pins, change = take_instructions(None, said, adopt=False, now=1.0)
    assert (change, pins.listed) == (ToolChange(INSTRUCTIONS, "pinned"), False)
    assert take_instructions(pins, said, adopt=False, now=2.0) == (pins, None)
    pins, changes = take_page(pins, Page([("a", print_tool({"name": "a"}))]), adopt=False, now=3.0)
    assert [each.what for each in changes] == ["pinned"]
    assert pins.listed
    drifted, change = take_instructions(pins, other, adopt=False, now=4.0)
    assert change == ToolChange(INSTRUCTIONS, "changed", ("instructions",))
    back, _ = take_instructions(drifted, said, adopt=False, now=5.0)
    assert back.instructions is not None
    assert not back.instructions.stands, "until somebody approves"
    assert from_json(json.loads(json.dumps(to_json(back)))) == back
    only = approve(back, None, 6.0, instructions=True)
    assert only is not None
    assert only.instructions is not None
    assert only.instructions.stands
    assert take_instructions(drifted, other, adopt=True, now=7.0)[0].instructions.stands  # type: ignore[union-attr]


def test_instructions_that_come_or_go_are_a_change() -> None:
    none, some = print_tool({}), print_tool({"instructions": "A."})
    for before, after in ((none, some), (some, none)):
        pins, _ = take_instructions(None, before, adopt=False, now=1.0)
        _, change = take_instructions(pins, after, adopt=False, now=2.0)
        assert change is not None
        assert change.what == "changed"


def test_a_file_of_an_earlier_version_has_no_instructions_yet() -> None:
    value = to_json(ServerPins(1.0, listing=False, tools={}))
    del value["instructions"], value["listed"]
    pins = from_json(value)
    assert (pins.instructions, pins.listed) == (None, True)
    later, change = take_instructions(pins, print_tool({"instructions": "A."}), adopt=False, now=2.0)
    assert change is not None
    assert change.what == "pinned"
    assert later.instructions is not None
    assert later.instructions.stands
