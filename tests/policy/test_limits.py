"""Limits in a policy: which are well formed, what they match, and what the policy's commands make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model import Call, Outcome
from proxy.errors import PolicyError
from proxy.policy.decide import CompiledPolicy
from proxy.policy.explain import explain
from proxy.policy.lint import lint_limits
from proxy.policy.load import load_policy
from proxy.policy.replay import replay
from proxy.policy.rule_tests import coverage, run_tests
from proxy.policy.rules import PolicyFile

MAILS: dict[str, Any] = {"id": "mails", "tools": ["send_mail"], "count": 20, "within": "1h"}
MONEY: dict[str, Any] = {"id": "money", "tools": ["pay"], "sum": {"arg": "amount", "max": "99.50"}, "within": "1d"}


def policy(*limits: dict[str, Any], rules: Any = (), default: str = "allow") -> CompiledPolicy:
    file = PolicyFile.model_validate({"version": 1, "rules": list(rules), "limits": list(limits)})
    return CompiledPolicy(file.rules, default=default, version="v1", limits=file.limits)


def call(tool: str = "send_mail", **arguments: Any) -> Call:
    return Call("tools/call", "mail.example", "bot", tool, arguments)


WRONG = [
    ({"within": None}, "need within"),
    ({"count": None}, "one of count"),
    ({"sum": {"arg": "x", "max": 1}}, "one of count"),
    ({"count": 0}, "greater than or equal to 1"),
    ({"within": "soon"}, "write a time like"),
    ({"count": None, "concurrency": 2}, "concurrency: has none"),
    ({"count": None, "within": None, "concurrency": 2, "action": "two_phase"}, "a person cannot decide"),
    ({"approval": "human"}, "needs action: two_phase"),
    ({"per": "moon"}, "per"),
    ({"per": []}, "per"),
    ({"action": "two_phase", "methods": ["resources/read"]}, "only tools can be two-phase"),
    ({"count": None, "sum": {"arg": "@paths", "max": 1}}, "name the argument"),
    ({"count": None, "sum": {"arg": "amount.**", "max": 1}}, "name the argument"),
    ({"count": None, "sum": {"arg": "amount", "max": -1}}, "negative"),
    ({"count": None, "sum": {"arg": "amount", "max": "1e5"}}, "plain decimal"),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=lambda each: str(each)[:40])
def test_a_limit_that_says_too_much_or_too_little_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    limit = {name: value for name, value in {**MAILS, **change}.items() if value is not None}
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps({"version": 1, "limits": [limit]}))
    with pytest.raises(PolicyError, match=said):
        load_policy(file)


def test_ids_are_unique_over_rules_and_limits(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nrules: [{id: a, action: deny}]\nlimits: [{id: a, count: 1, within: 1h}]\n")
    with pytest.raises(PolicyError, match="already used"):
        load_policy(file)


def test_only_calls_that_fit_are_charged() -> None:
    both = policy(MAILS, MONEY)
    assert [charge.limit for charge in both.decide(call()).charges] == ["mails"]
    assert [charge.limit for charge in both.decide(call("SEND_MAIL")).charges] == ["mails"]
    assert [(c.limit, c.amount) for c in both.decide(call("pay", amount=2)).charges] == [("money", 2 * 10**18)]
    assert both.decide(call("read_mail")).charges == ()
    assert both.decide(Call("tools/list", "mail.example", "bot")).charges == ()
    assert policy(MAILS, default="deny").decide(call()).charges == ()


def test_a_limit_that_is_used_up_decides_as_a_rule_does() -> None:
    beyond = policy(MAILS).decide_beyond(call(), {"mails": 20})
    assert (beyond.outcome, beyond.reason, beyond.rule) == (Outcome.DENY, "limit_exceeded", "mails")
    asks = policy({**MAILS, "action": "two_phase"}).decide_beyond(call(), {"mails": 20})
    assert asks.outcome is Outcome.TWO_PHASE
    assert asks.terms is not None
    assert (asks.terms.how, asks.terms.approval) == ("hold", "human")
    shadow = policy({**MAILS, "mode": "shadow"}).decide_beyond(call(), {"mails": 20})
    assert (shadow.outcome, shadow.shadow) == (Outcome.ALLOW, ("mails",))
    assert policy(MAILS).decide_beyond(call(), {"gone": 1}).reason == "policy_error"


def test_terms_of_a_rule_and_of_a_limit_add_up() -> None:
    rule = {"id": "careful", "action": "two_phase", "tools": ["pay"]}
    limit = {**MONEY, "action": "two_phase", "approval": {"how": "propose", "people": 2}}
    terms = policy(limit, rules=[rule]).decide_beyond(call("pay", amount=1), {"money": 5}).terms
    assert terms is not None
    assert (terms.approval, terms.people) == ("human", 2)


def test_a_tool_is_shown_with_its_phases_where_a_limit_may_want_a_proposal() -> None:
    assert policy(MAILS).governs(call()) == "never"
    assert policy({**MAILS, "action": "two_phase"}).governs(call()) == "never"
    assert policy({**MAILS, "action": "two_phase", "approval": "human"}).governs(call()) == "sometimes"


def test_an_amount_that_cannot_be_read_is_a_denial_that_policy_test_and_explain_show() -> None:
    decision = policy(MONEY).decide(call("pay", amount="lots"))
    assert (decision.outcome, decision.reason, decision.rule) == (Outcome.DENY, "limit_amount", "money")
    shown = explain(policy(MONEY), call("pay", amount=1.5)).data()["limits"]
    assert [(one["limit"], one["says"]) for one in shown] == [("money", "1.5 of 99.5 in 1d")]


def test_tests_beside_a_limit_are_run() -> None:
    tests = [
        {"call": {"tool": "pay", "arguments": {"amount": "1.25"}}, "expect": "counts", "amount": 1.25},
        {"call": {"tool": "pay", "arguments": {}}, "expect": "deny", "reason": "limit_amount"},
        {"call": {"tool": "read"}, "expect": "no_match"},
        {"call": {"tool": "pay", "arguments": {"amount": 3}}, "expect": "counts", "amount": 4},
    ]
    limits = PolicyFile.model_validate({"version": 1, "limits": [{**MONEY, "tests": tests}]}).limits
    results = run_tests([], [], limits)
    assert [result.passed for result in results] == [True, True, True, False]
    assert (results[3].expected, results[3].got) == ("counts 4", "counts 3")
    assert coverage(limits, results)[0].complete


def test_remarks_on_limits() -> None:
    limits = PolicyFile.model_validate({"version": 1, "limits": [{**MAILS, "per": "session"}]}).limits
    assert [remark.kind for remark in lint_limits(limits)] == ["evadable", "untested"]


def event(at: float, agent: str = "bot", **more: Any) -> dict[str, Any]:
    told = {"kind": "decided", "time": at, "call_id": str(at), "agent": agent, "server": "mail.example"}
    told |= {
        "method": "tools/call",
        "tool": "send_mail",
        "arguments": {},
        "decision": "allow",
        "reason": "default_allow",
    }
    return told | more


def test_a_replay_counts_recorded_calls_in_the_order_of_time() -> None:
    events = [event(float(at)) for at in (10, 4000, 20, 30, 7300, 3615)] + [event(31.0, "other")]
    found = replay(policy({**MAILS, "count": 2}), events)
    assert [(change.time, change.now, change.now_reason) for change in found.changes] == [
        (30.0, "deny", "limit_exceeded")
    ]
    asked = replay(policy({**MAILS, "count": 2, "action": "two_phase"}), events)
    assert [(change.time, change.now) for change in asked.changes] == [(30.0, "two_phase"), (3615.0, "two_phase")]


def test_a_call_that_a_limit_refused_is_replayed_too() -> None:
    refused = event(10.0, decision="deny", reason="limit_exceeded", rule="mails")
    (change,) = replay(policy(), [refused]).changes
    assert (change.was, change.now) == ("deny", "allow")
