"""Whether a policy lets through more than another one: proofs, witnesses, and what stays unknown."""

import json
import random

import pytest

from proxy.core.model import Outcome
from proxy.policy.load import compile_sources, load_sources, load_text
from proxy.policy_learning.widening import find_widening
from proxy.redact import builtin
from proxy.system.package_data import PROFILES, profile_file
from tests.support.random_policies import compare, compiled


def policy(*rules, default="deny"):
    return {"version": 1, "default": default, "rules": [{"id": f"r{n}", **rule} for n, rule in enumerate(rules)]}


def verdict(old, new):
    return find_widening(compiled(old), compiled(new))


def allow(**when):
    return {"action": "allow", "tools": ["read"], "when": {"arg": "x", **when}}


def deny(**when):
    return {"action": "deny", "tools": ["read"], "when": {"arg": "x", **when}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (policy(allow(path_under="/srv")), policy(allow(path_under="/srv/app"))),
        (policy(allow(gte=1, lte=9)), policy(allow(gte=2, lte=8))),
        (policy(allow(**{"in": ["a", "b"]})), policy(allow(equals="a"))),
        (policy(deny(matches="^a+$"), default="allow"), policy(deny(matches="^a+$"), deny(gt=5), default="allow")),
        (policy(allow(exists=True)), policy(allow(exists=True, type="string"))),
        (policy({"action": "allow"}), policy({"action": "two_phase"})),
        (policy(default="allow"), policy(default="deny")),
    ],
)
def test_a_narrower_policy_is_proven_and_the_wider_one_has_a_witness(old, new):
    assert verdict(old, new).answer == "no"
    assert verdict(old, old).answer == "no"
    found = verdict(new, old)
    assert found.answer == "yes"
    was, now = compiled(new).decide(found.witness), compiled(old).decide(found.witness)
    assert now.outcome is Outcome.ALLOW
    assert was.outcome is not Outcome.ALLOW


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # What keeps a session alive is let through by default, and a glob can stop it.
        ([{"action": "deny", "methods": ["tools/*"]}], []),
        ([{"action": "deny", "methods": ["*"]}], [{"action": "deny", "methods": ["p*", "t*"]}]),
        # Names that this search would invent are taken.
        (
            [{"action": "deny", "tools": ["zz*"]}],
            [{"action": "deny", "tools": ["zz*"]}, {"action": "allow"}],
        ),
        (
            [{"action": "deny", "tools": ["req*", "rex"]}],
            [{"action": "deny", "tools": ["req*", "rex"]}, {"action": "allow", "tools": ["re*"]}],
        ),
        (
            [{"action": "deny", "servers": ["zz-other"]}],
            [{"action": "deny", "servers": ["zz-other"]}, {"action": "allow"}],
        ),
    ],
)
def test_no_name_that_rules_use_up_hides_what_is_let_through(old, new):
    assert verdict(policy(*old), policy(*new)).answer == "yes"


def test_an_agent_that_may_commit_by_itself_is_let_through_more_than_one_that_waits_for_people():
    human, auto = ({"action": "two_phase", "tools": ["read"], "approval": how} for how in ("human", "auto"))
    assert verdict(policy(human), policy(auto)).answer == "yes"
    assert verdict(policy(auto), policy(human)).answer == "unknown", "the ways to ask differ"
    assert verdict(policy(auto), policy(auto, human)).answer == "no"
    assert verdict(policy(auto, human), policy(auto)).answer == "yes"


@pytest.mark.parametrize("default", ["allow", "deny"])
def test_fewer_people_or_another_way_to_ask_is_not_proven_to_be_the_same(default):
    ask = {"action": "two_phase", "tools": ["read"], "approval": {"how": "hold", "people": 2}}
    for other in ({"how": "hold", "people": 1}, {"how": "elicit", "people": 2}):
        found = verdict(policy(ask, default=default), policy({**ask, "approval": other}, default=default))
        assert (found.answer, found.why) == ("unknown", ["two_phase rules differ in how they ask"])
    more = {**ask, "approval": {"how": "elicit", "people": 2}}
    assert verdict(policy(ask, default=default), policy(ask, more, default=default)).answer == "unknown"
    assert verdict(policy(ask, default=default), policy(ask, ask, default=default)).answer == "no"


def test_what_cannot_be_decided_is_unknown_with_a_reason_and_never_no():
    found = verdict(policy(allow(matches="^(ab)+$")), policy(allow(matches="^(ab){7}$")))
    assert found.answer == "unknown"
    assert any("matches on x" in why for why in found.why)


def test_a_name_in_another_case_is_a_way_around_a_deny_that_is_gone():
    old = policy({"action": "deny", "tools": ["read"]}, default="allow")
    new = policy({"action": "deny", "tools": ["reader"]}, default="allow")
    assert verdict(old, new).answer == "yes"


def test_other_services_and_odd_globs_are_unknown():
    external = {"action": "external", "service": "opa", "tools": ["read"]}
    assert verdict(policy(), policy(external)).answer in ("yes", "unknown")
    narrow = {**external, "when": {"arg": "x", "equals": "a"}}
    assert verdict(policy(external), policy(narrow)).answer == "unknown"
    assert verdict(policy(external), policy(external)).answer == "no", "both ask the same of the same calls"
    odd = {"action": "allow", "tools": ["r[ae]?d"]}
    assert verdict(policy(odd), policy(odd)).answer == "no"
    assert verdict(policy(odd), policy({**odd, "when": {"arg": "x", "equals": "a"}})).answer == "unknown"


@pytest.mark.parametrize("number", range(8))
def test_random_policies_agree_with_brute_force(number):
    assert compare(random.Random(f"suite-{number}")) in ("yes", "no", "unknown", "unknown, and there is one")


def test_shipped_profiles_are_compared_with_more_rules_as_well():
    book = builtin()
    for name in PROFILES:
        before = load_sources(profile_file(name), book)
        more = {"version": 1, "rules": [{"id": "mine", "action": "deny", "tools": ["danger"]}]}
        after = (*before, load_text(json.dumps(more), "more", book))
        assert find_widening(compile_sources(before), compile_sources(after)).answer == "no"
        back = find_widening(compile_sources(after), compile_sources(before))
        assert (back.answer, back.witness.tool.lower()) == ("yes", "danger")


def test_a_rule_that_is_gone_is_found_among_very_many_kinds_of_calls():
    many = [{"action": "deny", "tools": [f"t{n}"], "agents": [f"a{n}"], "servers": [f"s{n}"]} for n in range(40)]
    before = policy(*many, {"action": "deny", "tools": ["last"]}, default="allow")
    found = verdict(before, policy(*many, default="allow"))
    assert (found.answer, found.witness.tool.lower()) == ("yes", "last")


def test_a_test_beside_a_rule_is_a_witness_where_no_value_would_be_found():
    odd = {"arg": "x", "matches": "^(ab){7}$"}
    tested = {"call": {"agent": "a", "tool": "read", "arguments": {"x": "ab" * 7}}, "expect": "allow"}
    found = verdict(policy(), policy({"action": "allow", "tools": ["read"], "when": odd, "tests": [tested]}))
    assert (found.answer, found.witness.arguments) == ("yes", {"x": "ab" * 7})
    wrong = {**tested, "call": {"tool": "read", "arguments": {"x": "no"}}}
    assert (
        verdict(policy(), policy({"action": "allow", "tools": ["read"], "when": odd, "tests": [wrong]})).answer != "no"
    )


def test_names_as_they_stand_are_tried_before_their_other_readings():
    rule = {"action": "allow", "tools": ["read_file"], "agents": ["bot"], "servers": ["files"]}
    many = [{**rule, "tools": [f"t{n}"], "agents": [f"a{n}"], "servers": [f"s{n}"]} for n in range(40)]
    found = verdict(policy(*many), policy(*many, rule))
    assert (found.answer, found.witness.agent, found.witness.tool) == ("yes", "bot", "read_file")
