"""Questions and answers as OPA and Cedar have them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.external import Ask, Asked
from proxy.core.identity import Identity
from proxy.core.model import Call, Context, Principal
from proxy.external.shapes import MAX_SAID, as_cedar, cedar_body, entity, opa_body, question, read_cedar, read_opa

WHO = Identity("okta", "https://id", "alice", "k", {"sub": "alice", "act": {"sub": "bot"}, "mail": "a@b"}, ())
CALL = Call("tools/call", "mail", "okta:bot", "send", {"to": "secret"}, identity=WHO)
ASKED = Asked(CALL, Context(Principal("okta:bot", authenticated=True, identity=WHO), "mail"), "id", {"to": "[mask]"})


def test_a_question_has_what_is_known_of_the_call_and_masked_arguments() -> None:
    told = opa_body(question(Ask("r", "opa"), ASKED))["input"]
    assert (told["agent"], told["server"], told["tool"], told["method"]) == ("okta:bot", "mail", "send", "tools/call")
    assert told["arguments"] == {"to": "[mask]"}
    assert told["identity"] == {"provider": "okta", "issuer": "https://id", "subject": "alice", "act": ["bot"]}
    assert question(Ask("r", "opa", "raw"), ASKED)["arguments"] == {"to": "secret"}
    assert "arguments" not in question(Ask("r", "opa", "none"), ASKED)


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        ({"result": True}, (None, "")),
        ({"result": False}, ("external_denied", "")),
        ({"result": {"allow": True, "reason": "ok"}}, (None, "ok")),
        ({"result": {"allow": False, "reason": "not\n on\tSundays"}}, ("external_denied", "not on Sundays")),
        ({}, ("external_denied", "the decision is undefined")),
        ({"decision_id": "x"}, ("external_denied", "the decision is undefined")),
    ],
)
def test_opa_says_yes_or_no(answer: Any, read: Any) -> None:
    assert read_opa(answer) == read


@pytest.mark.parametrize(
    "answer",
    [None, [], "true", True, {"result": None}, {"result": "true"}, {"result": 1}, {"result": []}, {"result": {}},
     {"result": {"allow": "true"}}, {"result": {"allow": 1}}, {"result": {"allowed": True}}, {"result": [True]}],
)  # fmt: skip
def test_anything_else_of_opa_is_no_decision(answer: Any) -> None:
    assert read_opa(answer)[0] == "external_answer"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"decision": "Allow", "diagnostics": {"reason": ["p1"], "errors": []}}, None),
        ({"decision": "ALLOW", "determiningPolicies": [], "errors": []}, None),
        ({"decision": "Deny", "diagnostics": {"reason": [], "errors": []}}, "external_denied"),
        ({"decision": "DENY"}, "external_denied"),
        ({"decision": "Allow", "diagnostics": {"reason": [], "errors": ["p2: no such attribute"]}}, "external_answer"),
        ({"decision": "ALLOW", "errors": [{"errorDescription": "x"}]}, "external_answer"),
        *(({"decision": odd}, "external_answer") for odd in ("allow", "Permit", True, None, ["Allow"], "")),
        ({}, "external_answer"),
        ([], "external_answer"),
    ],
)
def test_cedar_says_allow_or_deny(answer: Any, reason: str | None) -> None:
    assert read_cedar(answer)[0] == reason


def test_cedar_is_asked_by_entities_whose_names_cannot_break_out() -> None:
    body = cedar_body(question(Ask("r", "cedar"), ASKED))
    assert body["principal"] == 'Agent::"okta:bot"'
    assert (body["action"], body["resource"]) == ('Action::"tools/call"', 'Tool::"mail/send"')
    assert "agent" not in body["context"]
    assert entity("Tool", 'x" || true\\é') == 'Tool::"x\\u{22} \\u{7c}\\u{7c} true\\u{5c}\\u{e9}"'
    listing = Asked(Call("tools/list", "mail", "bot"), ASKED.context, "id")
    assert cedar_body(question(Ask("r", "cedar"), listing))["resource"] == 'Server::"mail"'


def test_cedar_gets_no_null_and_no_fractions() -> None:
    given = {"a": None, "b": [1, None, 1.5, True], "c": 2**63, "d": {"e": None}}
    assert as_cedar(given) == {"b": [1, "1.5", True], "c": str(2**63), "d": {}}


def test_what_a_service_says_has_an_end() -> None:
    assert len(read_opa({"result": {"allow": False, "reason": "x" * 999}})[1]) == MAX_SAID + 1
    assert read_opa({"result": {"allow": False, "reason": ["x"]}}) == ("external_denied", "")
