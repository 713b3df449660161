"""The names and descriptions of a two-phase tool's phases."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.twophase.listing import LONG, SHORT, Names, commit_tool, phase_names, propose_tool, read_name

TOOL: dict[str, Any] = {
    "name": "transfer_funds",
    "title": "Transfer",
    "description": "Moves money.",
    "inputSchema": {
        "type": "object",
        "properties": {"amount": {"type": "number"}},
        "required": ["amount"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object"},
    "annotations": {"title": "Transfer!", "destructiveHint": True, "idempotentHint": False},
    "execution": {"taskSupport": "optional"},
    "_meta": {"x": 1},
    "icons": [{"src": "data:,"}],
}
NAMES = Names("transfer_funds_propose", "transfer_funds_commit")


def test_phases_are_named_after_the_tool() -> None:
    assert phase_names("transfer_funds", ()) == NAMES


@pytest.mark.parametrize("taken", [{"t_propose"}, {"t_commit"}, {"t_propose", "t_commit"}])
def test_a_name_that_the_server_has_is_not_taken_twice(taken: set[str]) -> None:
    names = phase_names("t", taken)
    assert {names.propose, names.commit}.isdisjoint({"t_propose", "t_commit"})
    assert names.propose.startswith("t_")
    assert names.propose.endswith("_propose")
    assert phase_names("t", {*taken, names.commit}) not in (names, phase_names("t", ()))


@pytest.mark.parametrize(
    ("length", "limit"), [(1, SHORT), (56, SHORT), (57, SHORT), (64, SHORT), (65, LONG), (120, LONG), (128, LONG)]
)
def test_names_stay_within_what_clients_take(length: int, limit: int) -> None:
    names = phase_names("x" * length, ())
    assert max(len(names.propose), len(names.commit)) <= limit


@given(st.sets(st.text("ab_", min_size=1, max_size=128) | st.sampled_from(["a", "a_propose", "a_commit"]), max_size=6))
def test_two_tools_never_share_a_phases_name(known: set[str]) -> None:
    names = [phase_names(tool, known) for tool in known]
    assert len({name for pair in names for name in (pair.propose, pair.commit)}) == 2 * len(known)


@given(st.sets(st.text("ab_", min_size=1, max_size=128) | st.sampled_from(["a_propose", "a_commit"]), max_size=6))
def test_every_name_is_read_back_as_its_tool_and_phase(known: set[str]) -> None:
    for tool in known:
        names = phase_names(tool, known)
        assert read_name(names.propose, known, lambda _: True) == ("propose", tool)
        assert read_name(names.commit, known, lambda _: True) == ("commit", tool)
        assert read_name(tool, known, lambda _: True) is None


def test_the_phases_of_a_tool_that_no_rule_governs_are_nobodys() -> None:
    assert read_name("t_propose", {"t"}, lambda _: False) is None


def test_a_servers_own_tool_with_such_an_ending_stays_its_own() -> None:
    assert read_name("git_commit", {"git_commit", "git"}, lambda _: True) is None
    assert read_name("git_commit", {"git_commit"}, lambda _: True) is None


def test_a_name_is_read_by_its_ending_where_the_server_was_never_listed() -> None:
    assert read_name("t_propose", (), lambda tool: tool == "t") == ("propose", "t")
    assert read_name("t_commit", (), lambda tool: tool == "t") == ("commit", "t")
    assert read_name("_commit", (), lambda _: True) is None


def test_a_name_is_read_by_its_ending_where_the_server_has_not_listed_the_tool() -> None:
    assert read_name("t_propose", {"other"}, lambda tool: tool == "t") == ("propose", "t")
    assert read_name("t_commit", {"other"}, lambda tool: tool == "t") == ("commit", "t")
    assert read_name("t_commit", {"other", "t_propose"}, lambda tool: tool == "t") is None


def test_proposing_is_described_as_reading_only_and_answers_in_its_own_form() -> None:
    shown = propose_tool(TOOL, NAMES)
    assert shown["name"] == "transfer_funds_propose"
    assert shown["annotations"] == {
        "title": "Transfer! (propose)",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert shown["inputSchema"]["properties"].keys() == {"amount", "_interlock"}
    assert shown["inputSchema"]["required"] == ["amount"]
    assert shown["title"] == "Transfer (propose)"
    assert "'transfer_funds_commit'" in shown["description"]
    assert shown["description"].endswith("transfer_funds: Moves money.")
    assert "outputSchema" not in shown
    assert "execution" not in shown


def test_committing_is_described_as_the_tool_itself_with_a_token() -> None:
    shown = commit_tool(TOOL, NAMES)
    assert shown["name"] == "transfer_funds_commit"
    assert shown["annotations"] == {**TOOL["annotations"], "title": "Transfer! (commit)"}
    assert shown["inputSchema"]["required"] == ["amount", "proposal_id", "commit_token"]
    assert shown["inputSchema"]["additionalProperties"] is False
    assert "outputSchema" not in shown
    assert shown["execution"] == TOOL["execution"]
    assert shown["_meta"] == TOOL["_meta"]


def test_a_tool_without_annotations_is_committed_without_any() -> None:
    assert "annotations" not in commit_tool({"name": "t"}, phase_names("t", ()))


@pytest.mark.parametrize("own", ["proposal_id", "commit_token"])
def test_a_tool_with_such_an_argument_of_its_own_takes_the_token_aside(own: str) -> None:
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": {own: {"type": "integer"}}}}
    schema = commit_tool(tool, phase_names("t", ()))["inputSchema"]
    assert schema["properties"][own] == {"type": "integer"}
    assert schema["properties"]["_interlock"]["required"] == ["proposal_id", "commit_token"]
    assert schema["required"] == ["_interlock"]


@pytest.mark.parametrize("schema", [None, "odd", [], {"properties": []}, {"required": "x"}, {"type": "object"}])
def test_an_odd_schema_is_made_whole(schema: Any) -> None:
    tool = {"name": "t", "description": 7, "title": ["x"], "annotations": "odd", "inputSchema": schema}
    names = phase_names("t", ())
    assert propose_tool(tool, names)["inputSchema"]["properties"].keys() == {"_interlock"}
    assert commit_tool(tool, names)["inputSchema"]["required"] == ["proposal_id", "commit_token"]


def test_describing_changes_nothing_of_the_tool() -> None:
    before = copy.deepcopy(TOOL)
    propose_tool(TOOL, NAMES)
    commit_tool(TOOL, NAMES)
    assert before == TOOL
