"""Deciding traffic by host, address, port and method."""

import pytest

from proxy.core.model import EgressRequest, Outcome
from proxy.policy.egress import CompiledEgress
from proxy.policy.rules import EgressPolicy


def egress(**section):
    return CompiledEgress(EgressPolicy.model_validate(section), version="v1")


def ask(made, host, port=443, method="GET", *, addresses=(), operator=(), agent="agent"):
    return made.decide(EgressRequest(host, port, method, tuple(addresses), agent), operator)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "[::ffff:169.254.169.254]",
        "::ffff:a9fe:a9fe",
        "[64:ff9b::a9fe:a9fe]",
        "fd00:ec2::254",
        "metadata.google.internal",
        "METADATA.GOOGLE.INTERNAL.",
        "100.100.100.200",
        "169.254.169.254.nip.io",
        "instance-data",
    ],
)
def test_cloud_metadata_is_denied_by_default_however_it_is_spelt(host):
    assert ask(egress(), host, 80).reason == "egress_metadata"


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("169.254.1.1", "egress_link_local"),
        ("[fe80::1]", "egress_link_local"),
        ("fe80::1%eth0", "egress_link_local"),
    ],
)
def test_link_local_addresses_are_denied_by_default(host, reason):
    assert ask(egress(), host).reason == reason


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"])
def test_a_name_is_judged_again_by_the_address_it_leads_to(address):
    assert ask(egress(), "innocent.example.com").outcome is Outcome.ALLOW
    assert ask(egress(), "innocent.example.com", addresses=["203.0.113.7", address]).reason == "egress_metadata"


def test_private_and_loopback_addresses_are_denied_by_choice():
    for host, kind in (
        ("10.0.0.1", "private"),
        ("fd00::1", "private"),
        ("127.1", "loopback"),
        ("localhost", "loopback"),
    ):
        assert ask(egress(), host).outcome is Outcome.ALLOW
        assert ask(egress(**{kind: "deny"}), host).reason == f"egress_{kind}"
    assert ask(egress(loopback="deny"), "0.0.0.0").reason == "egress_loopback"


def test_an_allow_does_not_override_a_guarded_class():
    made = egress(rules=[{"id": "a", "action": "allow", "hosts": ["169.254.169.254"]}])
    assert ask(made, "169.254.169.254").reason == "egress_metadata"
    assert ask(egress(metadata="allow", link_local="allow"), "169.254.169.254").outcome is Outcome.ALLOW


@pytest.mark.parametrize(
    ("host", "port", "method", "outcome"),
    [
        ("api.example.com", 443, "GET", "allow"),
        ("API.example.com.", 443, "GET", "allow"),
        ("api.example.com", 80, "GET", "deny"),
        ("api.example.com", 443, "POST", "deny"),
        ("api.example.com", 443, None, "deny"),
        ("api.example.com.evil.org", 443, "GET", "deny"),
        ("notexample.com", 443, "GET", "deny"),
        ("example.com", 443, "GET", "deny"),
    ],
)
def test_an_allow_holds_for_its_hosts_ports_and_methods_only(host, port, method, outcome):
    rule = {"id": "a", "action": "allow", "hosts": ["*.example.com"], "ports": [443], "methods": ["get"]}
    assert ask(egress(default="deny", rules=[rule]), host, port, method).outcome == outcome


def test_a_deny_holds_inside_a_tunnel_whose_methods_are_not_seen():
    made = egress(rules=[{"id": "d", "action": "deny", "hosts": ["example.com"], "methods": ["POST"]}])
    assert ask(made, "example.com", method=None).rule == "d"
    assert ask(made, "example.com", method="post").rule == "d"
    assert ask(made, "example.com", method="GET").outcome is Outcome.ALLOW


def test_a_deny_by_range_sees_literal_and_resolved_addresses():
    made = egress(rules=[{"id": "d", "action": "deny", "cidrs": ["203.0.113.0/24"]}])
    assert ask(made, "203.0.113.9").rule == "d"
    assert ask(made, "x.example.com", addresses=["203.0.113.9"]).rule == "d"
    assert ask(made, "x.example.com", addresses=["198.51.100.1"]).outcome is Outcome.ALLOW


def test_an_allow_by_range_needs_every_address_inside():
    made = egress(default="deny", rules=[{"id": "a", "action": "allow", "cidrs": ["203.0.113.0/24"]}])
    assert ask(made, "x.example.com", addresses=["203.0.113.9"]).outcome is Outcome.ALLOW
    assert ask(made, "x.example.com", addresses=["203.0.113.9", "198.51.100.1"]).outcome is Outcome.DENY
    assert ask(made, "x.example.com").reason == "egress_default_deny"


def test_look_alike_names_are_denied_as_what_they_imitate():
    made = egress(rules=[{"id": "d", "action": "deny", "hosts": ["apple.com"]}])
    assert ask(made, "xn--pple-43d.com").rule == "d"
    assert ask(made, "\u0430pple.com").rule == "d"


def test_rules_can_speak_of_some_agents():
    made = egress(rules=[{"id": "d", "action": "deny", "hosts": ["*"], "agents": ["bot-*"]}])
    assert ask(made, "example.com", agent="bot-1").rule == "d"
    assert ask(made, "example.com", agent="other").outcome is Outcome.ALLOW


def test_a_shadow_rule_is_told_of_and_decides_nothing():
    made = egress(rules=[{"id": "d", "action": "deny", "hosts": ["*"], "mode": "shadow"}])
    decision = ask(made, "example.com")
    assert (decision.outcome, decision.shadow) == (Outcome.ALLOW, ("d",))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "127.9.9.9", "0x7f.1"])
def test_the_proxy_s_own_operator_port_is_never_reached(host):
    made = egress(rules=[{"id": "a", "action": "allow", "hosts": ["*"]}])
    assert ask(made, host, 9443, operator=[("127.0.0.1", 9443)]).reason == "operator_port"
    assert ask(made, host, 9444, operator=[("127.0.0.1", 9443)]).outcome is Outcome.ALLOW


def test_a_name_that_resolves_to_the_operator_port_is_stopped():
    assert (
        ask(egress(), "x.example.com", 9443, addresses=["127.0.0.1"], operator=[("127.0.0.1", 9443)]).reason
        == "operator_port"
    )
    assert (
        ask(egress(), "x.example.com", 9443, addresses=["203.0.113.1"], operator=[("203.0.113.1", 9443)]).reason
        == "operator_port"
    )


@pytest.mark.parametrize("host", ["", "exa mple.com", "[::1", "a@b", "x/y\\z", "\x00"])
def test_a_host_that_cannot_be_read_is_denied(host):
    assert ask(egress(), host).outcome is Outcome.DENY


def test_an_address_that_cannot_be_read_is_denied():
    assert ask(egress(), "example.com", addresses=["nonsense"]).reason == "policy_error"


def secrets(made, host, **more):
    return [(r.rule, r.action) for r in ask(made, host, **more).redactions]


def test_secrets_may_go_anywhere_unless_the_section_says_otherwise():
    assert secrets(egress(), "a.com") == []
    for action in ("report", "deny"):
        assert secrets(egress(secrets=action), "a.com") == [("egress.secrets", action)]


def test_a_secrets_rule_speaks_for_its_hosts_and_the_strictest_wins():
    rules = [
        {"id": "lax", "action": "secrets", "secrets": "allow", "hosts": [".a.com"]},
        {"id": "strict", "action": "secrets", "secrets": "deny", "hosts": ["x.a.com"], "methods": ["POST"]},
    ]
    made = egress(secrets="report", rules=rules)
    assert secrets(made, "a.com") == []
    assert secrets(made, "x.a.com") == []
    assert secrets(made, "x.a.com", method="POST") == [("strict", "deny")]
    assert secrets(made, "b.com") == [("egress.secrets", "report")]


@pytest.mark.parametrize("host", ["203.0.113.9", "3405803785", "203-0-113-9.sslip.io", "a.c\u043em"])
def test_a_restriction_holds_for_every_reading_of_a_host_and_a_freedom_for_none_but_its_own(host):
    hosts = ["203.0.113.9", "a.com"]
    strict = egress(rules=[{"id": "r", "action": "secrets", "secrets": "deny", "hosts": hosts}])
    lax = egress(secrets="deny", rules=[{"id": "r", "action": "secrets", "secrets": "allow", "hosts": hosts}])
    assert secrets(strict, host) == [("r", "deny")]
    assert secrets(lax, "203.0.113.9.example.com") == [("egress.secrets", "deny")]
    assert secrets(lax, "a.c\u043em") == [("egress.secrets", "deny")]


def test_a_secrets_rule_opens_and_closes_nothing():
    rules = [{"id": "r", "action": "secrets", "secrets": "deny", "hosts": ["a.com"]}]
    assert ask(egress(default="deny", rules=rules), "a.com").reason == "egress_default_deny"
    assert ask(egress(rules=rules), "a.com").outcome is Outcome.ALLOW


def test_a_secrets_rule_in_shadow_is_only_told_of():
    decision = ask(egress(rules=[{"id": "r", "action": "secrets", "secrets": "deny", "mode": "shadow"}]), "a.com")
    assert (decision.redactions, decision.shadow) == ((), ("r",))
