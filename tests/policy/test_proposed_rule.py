"""Rules that agents propose: what is taken, and what is refused before anything reads it."""

import json

import pytest

from proxy.errors import PolicyError
from proxy.policy.load import load_text
from proxy.policy.proposed_rule import MAX_DEPTH, MAX_RULE, MAX_TESTS, check_rule
from proxy.redact import builtin

BOOK = builtin()


def rule(**changes):
    call = {"agent": "bot", "tool": "read", "arguments": {"path": "/srv/a"}}
    tests = [{"call": call, "expect": "allow"}, {"call": {**call, "tool": "write"}, "expect": "no_match"}]
    plain = {"id": "mine", "action": "allow", "agents": ["bot"], "tools": ["read"], "tests": tests, **changes}
    return {name: value for name, value in plain.items() if value is not None}


def check(agent="bot", taken=(), **changes):
    return check_rule(rule(**changes), agent, taken, BOOK)


def with_action(action, **changes):
    tests = [{**test, "expect": test["expect"].replace("allow", action)} for test in rule()["tests"]]
    return {"action": action, "tests": tests, **changes}


def test_a_good_rule_is_written_as_a_policy_file_that_means_the_same():
    checked = check()
    (loaded,) = load_text(checked.text, "x", BOOK).content.call_rules
    assert loaded.model_dump(exclude_unset=True, mode="json") == rule()
    assert (checked.rule_id, checked.tests, len(checked.digest)) == ("mine", 2, 64)
    assert checked.text.isascii()


def test_what_restricts_may_be_for_all():
    assert check(**with_action("deny", agents=None)).rule_id == "mine"


def test_what_asks_first_opens_what_is_denied_by_default_so_it_is_for_the_agent_alone():
    assert check(**with_action("two_phase")).rule_id == "mine"
    with pytest.raises(PolicyError, match="you alone"):
        check(**with_action("two_phase", agents=None))


def test_an_agent_does_not_propose_for_one_whose_name_is_its_own_in_lower_case():
    tests = [{**one, "call": {**one["call"], "agent": "BOT"}} for one in rule()["tests"]]
    assert check("BOT", agents=["BOT", "bot"], tests=tests)
    with pytest.raises(PolicyError, match="you alone"):
        check("BOT", agents=["bot"])


def test_an_agent_with_an_odd_name_proposes_for_itself_and_as_a_glob_for_nobody_else():
    odd = "b*t[1]"
    tests = [{**one, "call": {**one["call"], "agent": odd}} for one in rule()["tests"]]
    assert check(odd, agents=["b[*]t[[]1]"], tests=tests)
    with pytest.raises(PolicyError, match="you alone"):
        check(odd, agents=["b*t[1]"], tests=tests)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agents": None}, "you alone"),
        ({"agents": ["bot", "root"]}, "you alone"),
        ({"agents": ["*"]}, "you alone"),
        ({"agents": [{"claim": "sub", "in": ["x"]}]}, "you alone"),
        ({"tests": None}, "no_match"),
        ({"tests": rule()["tests"][:1]}, "no_match"),
        ({"tests": rule()["tests"][1:]}, "expect: allow"),
        ({"tools": ["write"]}, "test 1 expects allow"),
        ({"tests": rule()["tests"] * 20}, f"at most {MAX_TESTS}"),
        ({"id": "a" * 81}, "at most 80"),
        ({"id": "taken"}, "new name"),
        ({"id": 5}, "id"),
        ({"action": "permit"}, "action"),
        ({"action": "external", "service": "opa", "tests": None}, "propose one rule on calls"),
        ({"mode": "loud"}, "mode"),
        ({"when": {"arg": "path", "matches": "("}}, ""),
        ({"when": {"arg": "path", "matches": [rf"\pL{{1,900}}{n}" for n in range(17)]}}, "17 regular expressions"),
        ({"when": {"any": [{"arg": "path", "matches": f"a{n}"} for n in range(17)]}}, "17 regular expressions"),
        ({"when": {"arg": "path", "path_under": "~"}}, "full path"),
        ({"description": "\ud800"}, "no file can hold"),
        ({"description": float("nan")}, "no file can hold"),
        ({"description": "x" * MAX_RULE}, f"at most {MAX_RULE}"),
    ],
)
def test_what_is_no_good_is_refused_with_what_to_write(changes, words):
    with pytest.raises(PolicyError) as caught:
        check(taken={"taken"}, **changes)
    assert words in str(caught.value)


def test_rules_on_what_servers_do_are_not_taken():
    observed = {"id": "o", "on": "observed", "action": "deny", "tests": []}
    with pytest.raises(PolicyError):
        check_rule(observed, "bot", (), BOOK)


def test_a_detector_that_is_not_there_is_refused():
    redact = {"id": "r", "action": "redact", "detectors": ["nosuch"], "on": ["result"]}
    with pytest.raises(PolicyError, match="nosuch"):
        check_rule(redact, "bot", (), BOOK)


@pytest.mark.parametrize("value", [None, [], "id: x", 5, [rule()]])
def test_anything_but_an_object_is_refused(value):
    with pytest.raises(PolicyError, match="an object"):
        check_rule(value, "bot", (), BOOK)


def test_deep_nesting_is_refused_before_anything_goes_into_it():
    deep = json.loads('{"not":' * (MAX_DEPTH + 1) + "{}" + "}" * (MAX_DEPTH + 1))
    with pytest.raises(PolicyError, match="deep"):
        check(when=deep)
    wide = {"any": [{"arg": f"a{n}", "equals": n} for n in range(200)]}
    assert check(**with_action("deny", when={"not": wide}, agents=None))


def test_a_message_of_the_loader_is_bounded():
    with pytest.raises(PolicyError) as caught:
        check(**{f"wrong{n}": "y" * 100 for n in range(50)})
    assert len(str(caught.value)) < 2000
