"""A rule from a call: it loads, its tests pass, and it decides that call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.console.rule_draft import ACTIONS, rule_from_call, suggested_action
from proxy.policy.load import load_policy, load_sources
from proxy.policy.replay import recorded_call
from proxy.policy.rule_tests import coverage, run_tests
from tests.console.xss_corpus import CORPUS

CALL: dict[str, Any] = {
    "kind": "decided",
    "call_id": "01a1",
    "method": "tools/call",
    "server": "s",
    "agent": "bot",
    "tool": "read_file",
    "decision": "allow",
    "reason": "default_allow",
    "arguments": {"path": "/srv/app/../x.txt", "url": "https://Example.com/a", "limit": 3, "key": "[secret:aws:12ab]"},
}


def loaded(text: str, folder: Path, default: str = "") -> Any:
    file = folder / "draft.yaml"
    file.write_text(text + default)
    return file


@pytest.mark.parametrize("action", ACTIONS)
def test_a_draft_loads_passes_its_tests_and_decides_the_call(action: Any, tmp_path: Path) -> None:
    file = loaded(rule_from_call(CALL, action), tmp_path)
    (source,) = load_sources(file)
    results = run_tests(source.content.rules)
    assert all(result.passed for result in results)
    assert all(covered.complete for covered in coverage(source.content.rules, results))
    decision = load_policy(file).decide(recorded_call(CALL))
    assert (decision.outcome.value, decision.rule) == (action, source.content.rules[0].id)


def test_conditions_are_of_plain_values_and_not_of_masked_ones() -> None:
    text = rule_from_call(CALL, "deny")
    assert "path_under:\n" in text
    assert "- /srv\n" in text
    assert "host_in:\n" in text
    assert "equals: 3" in text
    assert "secret:aws" not in text.partition("tests:")[0]


def test_an_allow_is_suggested_where_only_the_default_denied() -> None:
    assert suggested_action(CALL) == "deny"
    assert suggested_action(CALL | {"decision": "deny", "reason": "default_deny"}) == "allow"
    assert suggested_action(CALL | {"decision": "deny", "reason": "policy_denied"}) == "deny"


@pytest.mark.parametrize("text", CORPUS)
def test_hostile_names_and_values_stay_values(text: str, tmp_path: Path) -> None:
    draft = rule_from_call(CALL | {"tool": text, "arguments": {"value": text, text: 1}}, "deny")
    assert draft.isascii()
    (source,) = load_sources(loaded(draft, tmp_path))
    (rule,) = source.content.rules
    assert rule.action == "deny"


NAMES = st.text(max_size=12)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)


@given(tool=NAMES, arguments=st.dictionaries(NAMES, VALUES, max_size=5), action=st.sampled_from(ACTIONS))
def test_whatever_the_call_the_draft_can_be_loaded_and_its_tests_pass(
    tool: str, arguments: dict[str, Any], action: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    draft = rule_from_call(CALL | {"tool": tool, "arguments": arguments}, action)
    (source,) = load_sources(loaded(draft, tmp_path_factory.mktemp("draft")))
    assert all(result.passed for result in run_tests(source.content.rules))
