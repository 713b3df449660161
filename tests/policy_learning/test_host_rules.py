"""Egress rules that are learned from recorded requests."""

import pytest

from proxy.core.model import EgressRequest, Outcome
from proxy.errors import PolicyError
from proxy.policy.load import compile_sources, load_text
from proxy.policy_learning import host_rules
from proxy.policy_learning.policy_text import policy_text
from proxy.policy_learning.trail_learner import Scope, learn_policy
from tests.policy_learning.test_trail_learner import event

HOSTILE = "evil\n  - {id: x}\x1b[31m"


def request(server, number=0, **values):
    base = {"kind": "request_shadowed", "event_id": f"r{number}", "decision": "allow", "time": 1.0 + number}
    base |= {"agent": "a", "server": server, "transport": "http", "shadow_rules": ["egress.default"]}
    return {**base, **values}


def learn(events, *marked):
    return learn_policy(lambda: events, Scope(frozenset(marked)))


def egress(learned, **also):
    source = load_text(policy_text(learned, "the trail", **also), "learned.yaml", ())
    return compile_sources([source]).egress


def reaches(learned, host, port=443, agent="a"):
    return egress(learned).decide(EgressRequest(host, port, "GET", (), agent)).outcome is Outcome.ALLOW


def test_each_agent_reaches_the_hosts_that_it_was_at_and_no_others():
    learned = learn([request("docs.example", 1), request("docs.example", 2, agent="b"), request("api.example:8443", 3)])
    assert reaches(learned, "docs.example")
    assert reaches(learned, "docs.example", 80)
    assert reaches(learned, "docs.example", agent="b")
    assert reaches(learned, "api.example", 8443)
    for host, port, agent in (
        ("api.example", 443, "a"),
        ("api.example", 8443, "b"),
        ("docs.example", 22, "a"),
        ("docs.example", 443, "c"),
        ("sub.docs.example", 443, "a"),
        ("docs.example.attacker.example", 443, "a"),
        ("attacker.example", 443, "a"),
        ("169.254.169.254", 80, "a"),
    ):
        assert not reaches(learned, host, port, agent), (host, port, agent)


def test_every_rule_names_its_evidence_and_has_tests():
    learned = learn([request("docs.example", number) for number in range(20)])
    (rule,) = learned.evidence()
    assert (rule["rule"], rule["calls"]) == ("learned-host-docs.example", 20)
    assert rule["audit_ids"] == ["r0", "r1", "r2", "r3", "r4", "r17", "r18", "r19"]
    text = policy_text(learned, "the trail")
    assert "# Evidence: 20 requests" in text
    assert "# Audit ids: r0, r1, r2" in text
    assert [test["expect"] for test in learned.hosts[0].values["tests"]] == ["allow"] + ["no_match"] * 3


def test_servers_that_were_called_over_the_network_stay_in_reach():
    call = event({"x": 1}, transport="http", server="mcp.example", event_id="c")
    local = event({"x": 1}, 1, transport="stdio", server="files")
    learned = learn([request("docs.example", 1), call, local])
    assert reaches(learned, "mcp.example")
    assert [one.requests.server for one in learned.hosts] == ["docs.example", "mcp.example"]


def test_where_requests_are_not_recorded_no_host_is_learned_and_the_file_says_so():
    learned = learn([event({"x": 1}, transport="http", server="mcp.example")])
    assert (learned.knows_hosts, learned.hosts) == (False, ())
    assert "# Hosts were not learned" in policy_text(learned, "the trail")
    assert reaches(learned, "anywhere.example"), "nothing is known, so nothing is stopped"


def test_refused_and_marked_requests_are_not_learned():
    refused = request("bad.example", 2, kind="request_refused", decision="deny")
    learned = learn([request("docs.example", 1), refused, request("odd.example", 3)], "r3")
    assert [one.requests.server for one in learned.hosts] == ["docs.example"]


@pytest.mark.parametrize("server", ["10.0.0.7", "127.0.0.1:8080", "[::1]:9000", "xn--bcher-kva.example", "a_b.example"])
def test_addresses_and_odd_names_are_learned(server):
    learned = learn([request(server)])
    host, _, port = server.rpartition(":") if server.count(":") else (server, "", "443")
    assert reaches(learned, host.strip("[]"), int(port)), policy_text(learned, "x")


def test_what_no_rule_can_name_is_reported():
    learned = learn([request("docs.example", 1), request(HOSTILE, 2), request("a:b:c", 3), request("", 4)])
    assert set(learned.uncovered) >= {"r3", "r4"}
    source = load_text(policy_text(learned, "the trail"), "learned.yaml", ())
    assert "x" not in {rule.id for rule in source.content.egress.rules}


def test_a_name_with_the_signs_of_globs_stands_for_itself():
    learned = learn([request("*", 1), request("docs.example", 2), request("[a-z].example", 3)])
    assert not reaches(learned, "attacker.example")
    assert not reaches(learned, "b.example")


def test_the_host_of_proposals_is_no_server():
    propose = event({"rule": {}}, transport="http", server="interlock.internal", tool="policy.propose")
    learned = learn([request("docs.example", 1), request("interlock.internal", 2), propose])
    assert [one.requests.server for one in learned.hosts] == ["docs.example"]
    assert learned.rules == ()


def test_shadow_stops_nothing():
    learned = learn([request("docs.example", 1)])
    decided = egress(learned, shadow=True).decide(EgressRequest("attacker.example", 443, "GET", (), "a"))
    assert decided.outcome is Outcome.ALLOW


def test_more_hosts_than_fit_are_refused(monkeypatch):
    monkeypatch.setattr(host_rules, "MAX_HOSTS", 3)
    with pytest.raises(PolicyError, match="--agent"):
        learn([request(f"h{number}.example", number) for number in range(4)])
