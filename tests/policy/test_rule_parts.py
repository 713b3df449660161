"""What several kinds of rules have in common."""

import pytest
from pydantic import ValidationError

from proxy.policy.rule_parts import Annotations, ByPeople, TestCall


def test_annotations_need_a_hint() -> None:
    with pytest.raises(ValidationError, match="needs a hint"):
        Annotations.model_validate({})


def test_a_test_call_is_a_tools_call_by_default() -> None:
    call = TestCall.model_validate({"tool": "x", "annotations": {"readOnlyHint": True}}).as_call()
    assert (call.method, call.server, call.agent, call.tool, call.hints.read_only) == (
        "tools/call",
        "server",
        "agent",
        "x",
        True,
    )


def test_one_person_approves_unless_more_are_asked_for() -> None:
    assert (ByPeople().how, ByPeople().people) == ("propose", 1)
    with pytest.raises(ValidationError):
        ByPeople.model_validate({"people": 0})
