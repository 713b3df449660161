"""How rules add up to a decision."""

import itertools

import pytest

from proxy.core.model import Call, Outcome, Redaction
from proxy.policy import compiled_rule
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile

DENY = {"id": "d", "action": "deny", "description": "no"}
PHASE = {"id": "p", "action": "two_phase"}
ALLOW = {"id": "a", "action": "allow"}
REDACT = {"id": "r", "action": "redact", "detectors": ["secrets"], "on": ["result"], "redact": "report"}


def policy(*rules, default="allow"):
    content = PolicyFile.model_validate({"version": 1, "rules": list(rules)})
    return CompiledPolicy(content.rules, default=default, version="v1")


def call(arguments=None, **fields):
    named = {"method": "tools/call", "server": "server", "agent": "agent", "tool": "tool", **fields}
    return Call(arguments=arguments, **named)


@pytest.mark.parametrize(
    ("rules", "outcome", "rule", "reason"),
    [
        ([DENY, PHASE, ALLOW], Outcome.DENY, "d", "policy_denied"),
        ([PHASE, ALLOW], Outcome.TWO_PHASE, "p", "two_phase_required"),
        ([ALLOW, REDACT], Outcome.ALLOW, "a", "policy_allowed"),
        ([REDACT], Outcome.DENY, None, "default_deny"),
        ([], Outcome.DENY, None, "default_deny"),
    ],
)
def test_the_strictest_rule_wins_in_any_order(rules, outcome, rule, reason):
    for order in itertools.permutations(rules):
        decision = policy(*order, default="deny").decide(call())
        assert (decision.outcome, decision.rule, decision.reason) == (outcome, rule, reason)
        assert decision.matched == tuple(sorted(r["id"] for r in rules))


def test_the_default_decides_what_no_rule_speaks_of():
    assert policy(default="allow").decide(call()).reason == "default_allow"
    assert policy(default="deny").decide(call()).reason == "default_deny"


def test_redactions_add_up_and_ride_along_with_any_outcome():
    second = {"id": "s", "action": "redact", "detectors": ["pii.card"]}
    expected = (
        Redaction("r", ("secrets",), frozenset({"result"}), "report"),
        Redaction("s", ("pii.card",), frozenset({"arguments", "result"}), "mask"),
    )
    assert policy(second, REDACT).decide(call()).redactions == expected
    assert policy(DENY, REDACT, second).decide(call()).redactions == expected


def test_a_shadow_rule_is_told_of_and_decides_nothing():
    decision = policy({**DENY, "mode": "shadow"}).decide(call())
    assert (decision.outcome, decision.shadow, decision.matched) == (Outcome.ALLOW, ("d",), ())


def test_a_shadow_redaction_masks_nothing():
    decision = policy({**REDACT, "mode": "shadow"}).decide(call())
    assert (decision.redactions, decision.shadow) == ((), ("r",))


def test_the_most_severe_deny_speaks_and_the_id_breaks_ties():
    low = {"id": "a-low", "action": "deny", "severity": "low"}
    one = {"id": "b-high", "action": "deny", "severity": "high", "respond": "error"}
    two = {"id": "c-high", "action": "deny", "severity": "high"}
    for order in itertools.permutations([low, one, two]):
        decision = policy(*order).decide(call())
        assert (decision.rule, decision.severity, decision.respond) == ("b-high", "high", "error")


def test_a_person_s_approval_outranks_the_machine_s_and_a_low_threshold_a_high_one():
    auto = {"id": "a", "action": "two_phase", "block_threshold": 0.1}
    human = {"id": "b", "action": "two_phase", "approval": "human", "block_threshold": 0.9}
    strict = {"id": "c", "action": "two_phase", "approval": "human", "block_threshold": 0.2}
    assert policy(auto, human).decide(call()).rule == "b"
    assert policy(auto, human, strict).decide(call()).rule == "c"


def test_the_terms_of_several_two_phase_rules_are_the_strictest_of_each():
    hold = {"id": "a", "action": "two_phase", "approval": {"how": "hold"}, "hold_seconds": 60}
    two = {"id": "b", "action": "two_phase", "approval": {"how": "hold", "people": 2}, "hold_seconds": 30}
    own = {"id": "c", "action": "two_phase", "approval": {"how": "task"}, "own": "refuse"}
    terms = policy(hold, two, own).decide(call()).terms
    assert (terms.approval, terms.how, terms.people, terms.own) == ("human", "task", 2, "refuse")
    assert terms.hold_seconds == 30
    alone = policy(hold).decide(call()).terms
    assert (alone.how, alone.people, alone.own, alone.hold_seconds) == ("hold", 1, "allow", 60)
    counted = policy({"id": "d", "action": "two_phase", "approval": "human", "approvals": 3}).decide(call()).terms
    assert (counted.how, counted.people) == ("propose", 3)
    assert policy(hold, PHASE).decide(call()).terms.how == "propose"


def test_only_what_is_proposed_changes_the_list_of_tools():
    hold = {"id": "a", "action": "two_phase", "approval": {"how": "hold"}}
    assert policy(hold).governs(call()) == "never"
    assert policy(hold, PHASE).governs(call()) == "always"


def test_tasks_are_offered_of_the_tools_whose_live_rules_say_so() -> None:
    task = {"id": "a", "action": "two_phase", "tools": ["pay"], "approval": {"how": "task"}}
    assert policy(task).offers_tasks
    assert policy(task).offers_task(call(tool="pay"))
    assert not policy(task).offers_task(call(tool="balance"))
    assert not policy({**task, "mode": "shadow"}).offers_task(call(tool="pay"))
    assert not policy({**task, "approval": {"how": "hold"}}).offers_tasks


def test_a_plain_deny_speaks_before_one_that_could_not_be_judged():
    unsure = {"id": "a", "action": "deny", "severity": "critical", "when": {"arg": "x", "path_under": "/etc"}}
    assert policy(DENY, unsure).decide(call({"x": 5})).reason == "policy_denied"
    assert policy(unsure).decide(call({"x": 5})).reason == "wrong_type"


def test_a_two_phase_that_cannot_be_judged_is_refused():
    rule = {**PHASE, "when": {"arg": "amount", "gt": 5}}
    decision = policy(rule).decide(call({"amount": "lots"}))
    assert (decision.outcome, decision.reason, decision.rule) == (Outcome.DENY, "wrong_type", "p")


def test_a_redaction_that_cannot_be_judged_applies():
    rule = {**REDACT, "when": {"arg": "path", "path_under": "/etc"}}
    decision = policy(rule).decide(call({"path": 5}))
    assert decision.outcome is Outcome.ALLOW
    assert [r.rule for r in decision.redactions] == ["r"]


def test_an_allow_that_cannot_be_judged_yields_to_another_that_can():
    unsure = {"id": "u", "action": "allow", "when": {"arg": "path", "path_under": "/workspace"}}
    assert policy(unsure, default="deny").decide(call({"path": 5})).reason == "wrong_type"
    assert policy(unsure, ALLOW, default="deny").decide(call({"path": 5})).reason == "policy_allowed"


def test_trouble_in_one_rule_does_not_colour_the_next():
    broken = {
        "id": "a",
        "action": "deny",
        "when": {"all": [{"arg": "x", "gt": 1}, {"arg": "y", "equals": 1}]},
    }
    other = {"id": "b", "action": "deny", "when": {"arg": "y", "equals": "two"}}
    assert policy(broken, other).decide(call({"x": "?", "y": "TWO"})).reason == "policy_denied"


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
def test_a_rule_that_raises_refuses_the_call_unless_it_only_watches(monkeypatch, mode):
    def broken(_when):
        def test(_reading):
            raise RuntimeError("boom")

        return test

    monkeypatch.setattr(compiled_rule, "compile_when", broken)
    rule = {**ALLOW, "mode": mode, "when": {"arg": "x", "equals": 1}}
    decision = policy(rule, default="allow").decide(call({"x": 1}))
    if mode == "enforce":
        assert (decision.outcome, decision.reason, decision.rule) == (Outcome.DENY, "policy_error", "a")
    else:
        assert decision.outcome is Outcome.ALLOW


@pytest.mark.parametrize("arguments", [[1], "text", 5, {5: "x"}, {"x": object()}, {"x": {1: 2}}, {"x": "\ud800"}])
def test_decide_never_raises_on_values_that_are_not_json(arguments):
    rules = [
        {"id": "a", "action": "deny", "when": {"arg": "**.x", "matches": "y"}},
        {"id": "b", "action": "deny", "when": {"arg": "x", "type": "string"}},
    ]
    assert policy(*rules).decide(call(arguments)).outcome is Outcome.DENY


@pytest.mark.parametrize(
    ("fields", "given", "matches"),
    [
        ({"tools": ["read_file"]}, {"tool": "read_file"}, True),
        ({"tools": ["read_file"]}, {"tool": "read_files"}, False),
        ({"tools": ["read_*"]}, {"tool": "read_files"}, True),
        ({"tools": ["*_file", "x?z"]}, {"tool": "xyz"}, True),
        ({"tools": ["x[ab]"]}, {"tool": "xb"}, True),
        ({"tools": ["x[!ab]"]}, {"tool": "xb"}, False),
        ({"tools": ["a.b"]}, {"tool": "axb"}, False),
        ({"tools": ["read_file"]}, {"tool": "Read_File"}, True),
        ({"tools": ["read_file"]}, {"tool": " read_file"}, True),
        ({"tools": ["read_file"]}, {"tool": "read\u200b_file"}, True),
        ({"tools": ["read_*"]}, {"tool": "READ_\uff58"}, True),
        ({"servers": ["fs-*"]}, {"server": "fs-1"}, True),
        ({"servers": ["fs-*"]}, {"server": "git"}, False),
        ({"agents": ["bot"]}, {"agent": "bot"}, True),
        ({"agents": ["bot"]}, {"agent": "human"}, False),
        ({}, {"method": "resources/read", "tool": None}, False),
        ({"methods": ["resources/*"]}, {"method": "resources/read", "tool": None}, True),
        ({"methods": ["resources/*"]}, {}, False),
        ({"methods": ["*"], "tools": ["x"]}, {"method": "ping", "tool": None}, False),
    ],
)
def test_globs_choose_the_calls_a_deny_speaks_of(fields, given, matches):
    decision = policy({**DENY, **fields}).decide(call(**given))
    assert (decision.outcome is Outcome.DENY) == matches


@pytest.mark.parametrize("tool", ["Read_File", " read_file", "read\u200b_file"])
def test_an_allow_takes_a_name_only_as_it_is_spelt(tool):
    decision = policy({**ALLOW, "tools": ["read_file"]}, default="deny").decide(call(tool=tool))
    assert decision.reason == "default_deny"


def test_other_methods_are_judged_by_their_parameters():
    rule = {**DENY, "methods": ["resources/read"], "when": {"arg": "uri", "path_under": "/etc"}}
    made = policy(rule)
    assert made.decide(call({"uri": "file:///etc/x"}, method="resources/read", tool=None)).outcome is Outcome.DENY
    assert made.decide(call({"uri": "file:///tmp/x"}, method="resources/read", tool=None)).outcome is Outcome.ALLOW


def test_a_default_of_deny_leaves_the_session_s_plumbing_alone_and_nothing_else():
    made = policy(default="deny")
    assert made.decide(call(method="initialize", tool=None)).outcome is Outcome.ALLOW
    assert made.decide(call(method="tools/list", tool=None)).outcome is Outcome.ALLOW
    assert made.decide(call(method="resources/read", tool=None)).outcome is Outcome.DENY
    assert made.decide(call(method="something/new", tool=None)).outcome is Outcome.DENY


def test_a_rule_can_still_deny_plumbing():
    made = policy({**DENY, "methods": ["tools/list"]}, default="deny")
    assert made.decide(call(method="tools/list", tool=None)).rule == "d"


def test_many_made_up_tool_names_do_not_pile_up():
    made = policy(DENY)
    for i in range(10_000):
        made.decide(call(tool=f"t{i}"))
    assert len(made._buckets) <= 4096


def test_settings_of_a_rule_are_found_by_its_id():
    made = policy({**PHASE, "approval": "human", "weights": {"prompt_drift": 1}})
    rule = made.rules["p"]
    assert (rule.approval, rule.block_threshold, rule.weights.prompt_drift) == ("human", 0.45, 1)


def test_the_version_is_in_every_decision():
    assert policy(DENY).decide(call()).policy_version == "v1"
    assert policy().decide(call()).policy_version == "v1"
    assert policy(DENY).decide(call([1])).policy_version == "v1"


ARGS = {"arg": "path", "path_under": "/etc"}


@pytest.mark.parametrize(
    ("rules", "default", "expected"),
    [
        ([], "allow", True),
        ([], "deny", False),
        ([DENY], "allow", False),
        ([{**DENY, "when": ARGS}], "allow", True),
        ([{**DENY, "mode": "shadow"}], "allow", True),
        ([{**DENY, "tools": ["other"]}], "allow", True),
        ([{**DENY, "agents": ["someone-else"]}], "allow", True),
        ([{**DENY, "servers": ["elsewhere"]}], "allow", True),
        ([{**DENY, "methods": ["resources/read"]}], "allow", True),
        ([{**DENY, "tools": ["TOOL"]}], "allow", True),
        ([ALLOW], "deny", True),
        ([{**ALLOW, "when": ARGS}], "deny", True),
        ([{**ALLOW, "mode": "shadow"}], "deny", False),
        ([{**ALLOW, "tools": ["other"]}], "deny", False),
        ([REDACT], "deny", False),
        ([PHASE], "deny", True),
        ([PHASE], "allow", True),
        ([ALLOW, DENY], "allow", False),
        ([ALLOW, {**DENY, "when": ARGS}], "deny", True),
    ],
)
def test_a_tool_could_be_allowed_unless_it_is_denied_whatever_its_arguments(rules, default, expected):
    made = policy(*rules, default=default)
    assert made.could_allow(Call("tools/call", "server", "agent", "tool")) is expected
    for arguments in (None, {}, {"path": "/etc/x"}, {"path": "/tmp/x"}, {"path": 7}):
        if made.decide(call(arguments)).outcome is not Outcome.DENY:
            assert expected, "a tool that can be called would be hidden"


def test_a_spelling_that_a_deny_catches_could_not_be_allowed():
    made = policy({**DENY, "tools": ["danger"]})
    assert not made.could_allow(Call("tools/call", "server", "agent", "Danger"))
    assert not made.could_allow(Call("tools/call", "server", "agent", "dan\u200bger "))


def test_what_cannot_be_judged_could_not_be_allowed(monkeypatch):
    made = policy()
    monkeypatch.setattr(made, "rules_for", lambda _call: 1 / 0)
    assert made.could_allow(Call("tools/call", "server", "agent", "tool")) is False


def test_an_answer_without_a_call_gets_every_redaction_that_its_server_might_have():
    rules = [
        {**REDACT, "id": "narrow", "tools": ["one"], "agents": ["x"], "when": {"arg": "a", "equals": 1}},
        {**REDACT, "id": "method", "methods": ["tasks/result"]},
        {**REDACT, "id": "elsewhere", "servers": ["another"]},
        {**REDACT, "id": "trial", "mode": "shadow"},
        DENY,
    ]
    decision = policy(*rules).unmatched("SERVER ")
    assert decision.outcome is Outcome.ALLOW
    assert [redaction.rule for redaction in decision.redactions] == ["method", "narrow"]
    found = policy(*rules).unmatched("another").redactions
    assert [redaction.rule for redaction in found] == ["elsewhere", "method", "narrow"]
