"""A policy learned from a made-up week: it allows what was recorded, and denies what nobody did."""

import pytest

from proxy.core.model import Call, Outcome
from proxy.errors import PolicyError
from proxy.policy.replay import recorded_call
from proxy.policy_learning import trail_learner
from proxy.policy_learning.trail_learner import Scope, learn_policy
from tests.support.synthetic_fleet import ATTACKS, DAY, START, Fleet


def event(arguments, number=0, **values):
    base = {"kind": "decided", "method": "tools/call", "agent": "a", "server": "s", "tool": "t", "time": 1.0 + number}
    base |= {"decision": "allow", "reason": "default_allow", "call_id": f"c{number}", "event_id": f"e{number}"}
    return {**base, "arguments": arguments, **values}


def learn(events, *marked):
    return learn_policy(lambda: events, Scope(frozenset(marked)))


def decide(learned, arguments, **names):
    call = {"method": "tools/call", "server": "s", "agent": "a", "tool": "t", **names}
    return learned.compiled().decide(Call(**call, arguments=arguments)).outcome


@pytest.fixture(scope="module")
def week():
    fleet = Fleet(7)
    events = [*fleet.events(range(7)), *fleet.marked(START + 7 * DAY), *fleet.refused(START + 7 * DAY)]
    marked = [one["call_id"] for one in events[-5:-1]]
    return events, marked, learn(events, *marked), fleet


def test_every_call_that_was_neither_refused_nor_marked_is_allowed(week):
    events, marked, learned, _ = week
    policy = learned.compiled()
    kept = [one for one in events if one["decision"] == "allow" and one["call_id"] not in marked]
    assert [one["call_id"] for one in kept if policy.decide(recorded_call(one)).outcome is not Outcome.ALLOW] == []
    assert (learned.learned, learned.marked, learned.denied, learned.uncovered) == (len(kept), 4, 1, [])


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attacks_that_were_held_out_are_denied(week, attack):
    agent, server, tool, arguments = attack
    decision = week[2].compiled().decide(Call("tools/call", server, agent, tool, arguments))
    assert decision.outcome is Outcome.DENY, decision


def test_few_later_honest_calls_are_refused(week):
    policy, later = week[2].compiled(), list(week[3].events(range(7, 9)))
    refused = [one for one in later if policy.decide(recorded_call(one)).outcome is not Outcome.ALLOW]
    assert len(refused) <= len(later) // 100, [one["arguments"] for one in refused]


def test_what_a_person_marked_is_not_learned_and_would_be_otherwise():
    events = [event({"path": "/srv/a/x"}, 1), event({"path": "/var/secret/k"}, 2)]
    assert decide(learn(events), {"path": "/var/secret/k"}) is Outcome.ALLOW
    assert decide(learn(events, "c2"), {"path": "/var/secret/k"}) is Outcome.DENY
    assert decide(learn(events, "e2"), {"path": "/var/secret/k"}) is Outcome.DENY


def test_a_refused_call_is_not_learned():
    refused = event({"x": 2}, 2, decision="deny", reason="policy_denied", tool="danger")
    learned = learn([event({"x": 1}), refused])
    assert decide(learned, {"x": 2}, tool="danger") is Outcome.DENY
    assert learned.denied == 1


def test_what_one_agent_does_another_may_not():
    events = [event({"path": "/srv/a/x"}, 1, agent="a"), event({"path": "/srv/b/x"}, 2, agent="b")]
    learned = learn(events)
    assert decide(learned, {"path": "/srv/b/x"}, agent="b") is Outcome.ALLOW
    assert decide(learned, {"path": "/srv/b/x"}, agent="a") is Outcome.DENY


def test_agents_that_call_alike_share_a_rule():
    learned = learn([event({"n": 1}, number, agent=agent) for number, agent in enumerate("ab")])
    assert [rule.values["agents"] for rule in learned.rules] == [["a", "b"]]


def test_a_condition_that_recorded_values_do_not_surely_meet_is_widened():
    odd = ["{not json", "%2e%2e%2f", "100%", "ﬁne", "a\u200bb", '{"a": [1', "\\u0000"]
    events = [event({"text": text, "n": {"deep": text}, "list": [text]}, number) for number, text in enumerate(odd)]
    learned = learn(events)
    assert learned.uncovered == []
    assert all(decide(learned, one["arguments"]) is Outcome.ALLOW for one in events)
    assert decide(learned, {"text": 5, "n": {"deep": "x"}, "list": ["x"]}) is Outcome.DENY


def test_calls_with_a_second_phase_stay_two_phase():
    learned = learn([event({"n": 1}, decision="propose", reason="two_phase_required")])
    assert decide(learned, {"n": 1}) is Outcome.TWO_PHASE
    assert learned.rules[0].values["approval"] == "human"


def test_other_methods_are_learned_and_sessions_need_no_rule():
    events = [event({"uri": "file:///srv/docs/a"}, 1, method="resources/read", tool=None)]
    events.append(event({}, 2, method="tools/list", tool=None))
    learned = learn(events)
    assert [rule.values.get("methods") for rule in learned.rules] == [["resources/read"]]
    assert decide(learned, {"uri": "file:///srv/docs/a"}, method="resources/read", tool=None) is Outcome.ALLOW


def test_names_with_the_signs_of_globs_stand_for_themselves():
    learned = learn([event({}, tool="run[*]?")])
    assert decide(learned, {}, tool="run[*]?") is Outcome.ALLOW
    assert decide(learned, {}, tool="runxx") is Outcome.DENY


def test_names_with_capitals_are_learned_in_every_reading():
    learned = learn([event({}, tool="readFile", agent="CI Bot", server="Files"), event({}, 1, tool="\uff24elete")])
    assert learned.uncovered == []
    assert decide(learned, {}, tool="readFile", agent="CI Bot", server="Files") is Outcome.ALLOW
    assert decide(learned, {}, tool="readFile", agent="ci", server="Files") is Outcome.DENY


def test_a_call_that_no_rule_can_name_is_reported(monkeypatch):
    monkeypatch.setattr("proxy.policy_learning.learned_rule.as_globs", lambda *_: ["another"])
    assert learn([event({})]).uncovered == ["c0"]


def test_more_tools_than_fit_are_refused(monkeypatch):
    monkeypatch.setattr(trail_learner, "MAX_TOOLS", 3)
    with pytest.raises(PolicyError, match="--agent"):
        learn([event({}, tool=f"t{number}") for number in range(4)])


@pytest.mark.parametrize("value", [10**400, -(10**400), 5e-324, 1e308, {"": 1}, {"a": {"": [1]}}, [10**400, 5e-324]])
def test_no_recorded_value_keeps_the_rest_from_being_learned(value):
    learned = learn([event({"x": value}), event({"x": value}, 1)])
    assert decide(learned, {"x": value}) is Outcome.ALLOW
    assert decide(learn([event({"": 1})]), {"": 1}) is Outcome.ALLOW


def test_a_tool_without_a_name_is_named_by_no_rule_and_opens_no_other_tool():
    learned = learn([event({"x": "a"}, tool=""), event({"x": "a"}, 1)])
    assert learned.uncovered == ["c0"]
    assert decide(learned, {"x": "a"}) is Outcome.ALLOW
    assert decide(learned, {"x": "a"}, tool="other") is Outcome.DENY


def test_an_odd_call_of_one_agent_widens_no_rule_of_another():
    paths = [f"/srv/notes/{name}" for name in "abcde"]
    honest = [event({"path": path}, n) for n, path in enumerate(paths)]
    odd = [event({"path": path}, 9 + n, agent="odd") for n, path in enumerate([*paths, "/srv/notes/%2e%2e/%2e%2e/x"])]
    learned = learn([*honest, *odd])
    assert decide(learned, {"path": "/srv/notes/f"}) is Outcome.ALLOW
    assert decide(learned, {"path": "/etc/passwd"}) is Outcome.DENY
    assert decide(learned, {"path": "/srv/notes/%2e%2e/%2e%2e/x"}, agent="odd") is Outcome.ALLOW
