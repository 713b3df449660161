"""What events say of other services' answers."""

from __future__ import annotations

from proxy.core.external import Ask, ExternalAnswer


def test_an_event_says_who_was_asked_by_which_rule_and_what_was_said() -> None:
    told = ExternalAnswer("external_denied", "not on Sundays", 0.0012).data(Ask("r", "opa"))
    expected = {"rule": "r", "service": "opa", "answer": "external_denied", "ms": 1.2, "said": "not on Sundays"}
    assert told == expected
    assert ExternalAnswer(None, cached=True).data(Ask("r", "opa"))["cached"] is True


def test_only_an_answer_without_a_reason_allows() -> None:
    assert ExternalAnswer(None).allows
    assert not ExternalAnswer("").allows
