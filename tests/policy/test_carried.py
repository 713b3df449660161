"""Which rules look for what, where."""

import pytest

from proxy.core.model import EgressRequest, Outcome
from proxy.errors import PolicyError
from proxy.policy.egress import CompiledEgress
from proxy.policy.load import load_policy
from proxy.policy.rules import EgressPolicy
from proxy.redact import builtin


def decide(*rules, host="example.com", **more):
    section = EgressPolicy.model_validate({"rules": list(rules)})
    return CompiledEgress(section).decide(EgressRequest(host, 443, "GET", **more))


DENY = {"id": "no", "action": "deny", "carries": ["secrets", "random_data"]}


def looked_for(decision):
    return [(r.rule, r.detectors, sorted(r.on - {"request"}), r.action) for r in decision.redactions]


def test_a_deny_of_what_is_carried_lets_the_request_go_on_to_be_scanned():
    decision = decide(DENY)
    assert decision.outcome is Outcome.ALLOW
    assert looked_for(decision) == [("no", ("secrets", "random_data"), ["body", "headers", "url"], "deny")]


def test_in_shadow_it_is_only_reported():
    assert looked_for(decide(DENY | {"mode": "shadow"}))[0][3] == "report"


def test_an_allow_lifts_names_for_its_hosts_and_parts_alone():
    lift = {"id": "yes", "action": "allow", "carries": ["random_data"], "in": ["url"], "hosts": ["example.com"]}
    assert looked_for(decide(DENY, lift)) == [
        ("no", ("secrets",), ["url"], "deny"),
        ("no", ("secrets", "random_data"), ["body", "headers"], "deny"),
    ]
    assert looked_for(decide(DENY, lift, host="example.com.evil.net")) == looked_for(decide(DENY))


def test_an_allow_of_one_detector_is_an_exception_to_its_family():
    lift = {"id": "yes", "action": "allow", "carries": ["secrets.jwt"], "hosts": ["example.com"]}
    assert looked_for(decide(DENY, lift))[0][1] == ("secrets", "random_data", "!secrets.jwt")


def test_an_allow_of_what_is_carried_opens_no_host():
    section = EgressPolicy.model_validate(
        {"default": "deny", "rules": [{"id": "yes", "action": "allow", "carries": ["secrets"]}]}
    )
    assert CompiledEgress(section).decide(EgressRequest("example.com", 443, "GET")).outcome is Outcome.DENY


@pytest.mark.parametrize(
    ("check", "host", "more"),
    [
        ("host_data", "68656c6c6f20776f726c64.t.example.net", {}),
        ("many_names", "a.example.net", {"many_names": True}),
        ("odd_address", "0x7f000001", {}),
        ("odd_address", "2130706433", {}),
        ("odd_address", "0177.0.0.1", {}),
        ("odd_address", "[::ffff:127.0.0.1]", {}),
        ("odd_address", "0.0.0.0", {}),
    ],
)
def test_what_a_hosts_name_carries_is_decided_before_anything_is_resolved(check, host, more):
    rule = {"id": "no", "action": "deny", "carries": [check]}
    assert decide(rule, host=host, **more).rule == "no"
    assert decide(rule, host="docs.example.net").outcome is Outcome.ALLOW
    assert decide(rule, host="127.0.0.1").outcome is Outcome.ALLOW
    lift = {"id": "yes", "action": "allow", "carries": [check], "hosts": [host]}
    if not host[0].isdigit() and host[0] != "[":
        assert decide(rule, lift, host=host, **more).outcome is Outcome.ALLOW


def test_an_unknown_name_is_told_with_its_place(tmp_path):
    text = "version: 1\negress:\n  rules:\n    - {id: a, action: deny, carries: [secrets, randon_data]}\n"
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(PolicyError, match=r"p\.yaml:4:\d+: there is no detector or check 'randon_data'"):
        load_policy(tmp_path / "p.yaml", builtin())


@pytest.mark.parametrize(
    "rule",
    [
        {"id": "a", "action": "deny", "in": ["url"]},
        {"id": "a", "action": "secrets", "secrets": "deny", "carries": ["secrets"]},
        {"id": "a", "action": "allow", "carries": ["host_data"]},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule):
    with pytest.raises(ValueError, match=r"carries|hosts"):
        EgressPolicy.model_validate({"rules": [rule]})
