"""Reason codes and the text a model reads."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from proxy.core.reasons import REASONS, explain
from proxy.policy import compiled_rule, decide

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("code", REASONS)
def test_every_reason_is_a_snake_case_code_with_sentences(code: str) -> None:
    reason = REASONS[code]
    assert reason.code == code
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", code)
    for sentence in (reason.meaning, reason.advice):
        assert sentence[0].isupper() or sentence.startswith(("jsonrpc", "tools/"))
        assert sentence.endswith(".")


def test_the_text_has_code_subject_meaning_advice_and_the_warning() -> None:
    text = explain("batch", "tool 'x'")
    for part in ("(batch)", "tool 'x' was not executed", REASONS["batch"].meaning, REASONS["batch"].advice, "not help"):
        assert part in text


def test_a_better_explanation_takes_the_meanings_place() -> None:
    text = explain("batch", "it", "Because of that.")
    assert "Because of that." in text
    assert REASONS["batch"].meaning not in text


def test_an_unknown_code_is_an_error() -> None:
    with pytest.raises(KeyError):
        explain("made_up", "it")


def codes_raised() -> set[str]:
    """Every reason the wire room raises or gives, read from its source."""
    found: set[str] = set()
    for file in (ROOT / "proxy" / "wire").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                position = {"WireError": 0, "Refused": 0, "_refuse": 1, "_refusal": 1}.get(node.func.id)
                if position is None or len(node.args) <= position:
                    continue
                if isinstance(first := node.args[position], ast.Constant):
                    found.add(str(first.value))
    return found


def test_every_reason_the_wire_gives_is_known() -> None:
    raised = codes_raised()
    assert len(raised) > 20
    assert raised <= REASONS.keys()


def test_every_reason_the_policy_denies_with_is_known() -> None:
    denying = {decide.DENIED, decide.DEFAULT_DENY, compiled_rule.POLICY_ERROR, "wrong_type", "ambiguous_value"}
    assert denying <= REASONS.keys()


@pytest.mark.parametrize("code", ["audit_unavailable", "internal_error", "stopping", "unreadable_response"])
def test_what_may_pass_by_itself_can_be_tried_again(code: str) -> None:
    assert REASONS[code].retryable


def test_a_refusal_by_policy_cannot_be_tried_again() -> None:
    assert not any(REASONS[code].retryable for code in ("policy_denied", "default_deny", "batch", "secret_found"))
