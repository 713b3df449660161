"""Deciding recorded calls again."""

import pytest

from proxy.policy.load import load_policy
from proxy.policy.replay import recorded_outcome, replay

CANDIDATE = """\
version: 1
default: allow
rules:
  - {id: no-danger, action: deny, tools: [danger]}
  - {id: paid, action: two_phase, tools: [pay]}
  - {id: no-etc, action: deny, tools: [read_file], when: {arg: path, path_under: /etc}}
  - {id: no-keys, action: deny, tools: [post], when: {arg: text, contains: AKIA}}
"""


def event(tool="echo", decision="allow", reason="default_allow", **more):
    made = {"kind": "decided", "time": 1.0, "call_id": "c", "method": "tools/call", "agent": "a", "server": "s"}
    return {**made, "tool": tool, "decision": decision, "reason": reason, **more}


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "new.yaml"
    file.write_text(CANDIDATE)
    return load_policy(file)


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (event("danger"), ("allow", "deny", "no-danger")),
        (event("pay"), ("allow", "two_phase", "paid")),
        (event("read_file", arguments={"path": "/tmp/../etc/x"}), ("allow", "deny", "no-etc")),
        (event("echo", "deny", "policy_denied", rule="old"), ("deny", "allow", None)),
        (event("echo", "deny", "two_phase_required", rule="old"), ("two_phase", "allow", None)),
        (event("echo", "propose", "proposal_blocked"), ("two_phase", "allow", None)),
        (event("echo", "allow", "proposal_committed"), ("two_phase", "allow", None)),
        (event("pay", "propose", "proposal_not_required"), ("allow", "two_phase", "paid")),
        (event("danger", "deny", "two_phase_required"), ("two_phase", "deny", "no-danger")),
    ],
)
def test_a_call_that_would_be_decided_otherwise_is_a_change(policy, recorded, expected):
    (change,) = replay(policy, [recorded]).changes
    assert (change.was, change.now, change.now_rule) == expected
    assert (change.was_rule, change.was_reason) == (recorded.get("rule"), recorded["reason"])


@pytest.mark.parametrize(
    "recorded",
    [
        event("echo"),
        event("danger", "deny", "policy_denied", rule="another-id"),
        event("pay", "deny", "two_phase_required"),
        event("read_file", arguments={"path": "/tmp/x"}),
    ],
)
def test_a_call_that_would_be_decided_alike_is_none(policy, recorded):
    outcome = replay(policy, [recorded])
    assert (outcome.decided, outcome.changes) == (1, ())


@pytest.mark.parametrize("reason", ["egress_denied", "duplicate_key", "internal_error", "secret_found", None])
def test_what_policy_did_not_decide_is_passed_over(policy, reason):
    outcome = replay(policy, [event("danger", "deny", reason)])
    assert (outcome.decided, outcome.passed_over, outcome.changes) == (0, 1, ())


def test_other_events_are_not_calls(policy):
    outcome = replay(policy, [{**event("danger"), "kind": "completed"}])
    assert (outcome.decided, outcome.passed_over) == (0, 0)


def test_a_decision_on_masked_arguments_says_so(policy):
    masked = {"text": "key [secret:aws-access-key:3f9a]"}
    denied = event("post", "deny", "policy_denied", rule="no-keys", arguments=masked)
    outcome = replay(policy, [denied])
    assert [change.masked for change in outcome.changes] == [True]
    assert outcome.data()["masked"] == 1
    assert replay(policy, [event("echo", arguments=masked)]).masked == 0
    assert replay(policy, [event("post", arguments={"text": "[a link]"})]).masked == 0


def test_masks_are_seen_in_keys_and_lists(policy):
    assert replay(policy, [event("post", arguments={"a": [{"[pii:card:1b2c]": 1}]})]).masked == 1


def test_a_response_is_decided_as_one(policy):
    recorded = event(None, arguments={"result": {}})
    del recorded["method"]
    assert replay(policy, [recorded]).decided == 1


def test_the_outcome_of_an_unknown_decision_is_not_guessed():
    assert recorded_outcome(event(decision="perhaps", reason="unheard_of")) is None


def test_what_agents_propose_to_the_proxy_is_no_call_of_a_server(policy):
    proposed = event("danger", server="interlock.internal", reason="rule_proposed")
    outcome = replay(policy, [proposed, event("echo")])
    assert (outcome.decided, outcome.passed_over, outcome.changes) == (1, 0, ())
