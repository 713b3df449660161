"""The guard: names, claims and this machine's own addresses."""

from __future__ import annotations

import socket

import pytest

from proxy.core.model import EgressRequest
from proxy.egress.guard import EgressGuard, Resolver, is_local
from proxy.policy.decide import CompiledPolicy
from proxy.policy.egress import CompiledEgress
from proxy.policy.rules import EgressPolicy

NAMES = {"allowed.test": ("192.0.2.1",), "own.test": ("127.0.0.5",), "far.test": ("192.0.2.9",)}


async def look_up(host: str, port: int) -> tuple[str, ...]:
    return NAMES[host]


def guard(own=("127.0.0.1", 8080), **section) -> EgressGuard:
    policy = CompiledPolicy([], default="allow", egress=CompiledEgress(EgressPolicy.model_validate(section)))
    return EgressGuard(lambda: policy, lambda: [own], look_up)


ALLOWLIST = {"default": "deny", "rules": [{"id": "a", "action": "allow", "hosts": ["allowed.test"]}]}


@pytest.mark.parametrize(
    ("address", "proven", "allowed"),
    [("192.0.2.1", False, True), ("192.0.2.66", False, False), ("192.0.2.66", True, True)],
)
async def test_a_claimed_name_counts_only_for_the_addresses_it_leads_to(address, proven, allowed):
    request = EgressRequest("allowed.test", 80, "GET", (address,))
    assert (await guard(**ALLOWLIST).judge(request, proven=proven)).allowed is allowed


async def test_a_claimed_name_that_is_denied_is_denied_at_any_address():
    rules = [{"id": "d", "action": "deny", "hosts": ["far.test"]}]
    judgement = await guard(rules=rules).judge(EgressRequest("far.test", 80, "GET", ("192.0.2.1",)), proven=False)
    assert judgement.decision.rule == "d"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.5", "localhost", "own.test", "::ffff:127.0.0.5"])
async def test_a_port_on_every_address_is_not_reached_by_any_of_this_machine_s(host):
    judgement = await guard(("0.0.0.0", 8080)).judge(EgressRequest(host, 8080, "GET"))
    assert judgement.decision.reason == "operator_port"


async def test_the_same_port_of_another_machine_may_be_reached():
    assert (await guard(("0.0.0.0", 8080)).judge(EgressRequest("far.test", 8080, "GET"))).allowed
    assert (await guard(("0.0.0.0", 8080)).judge(EgressRequest("192.0.2.7", 8080, "GET"))).allowed


CONFINED = {"rules": [{"id": "all", "action": "allow", "hosts": ["*"]}]}


@pytest.mark.parametrize("section", [{}, CONFINED])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.5", "own.test", "::1", "::ffff:127.0.0.1", "0.0.0.0"])
async def test_a_confined_agent_does_not_reach_this_machine_by_any_name(host, section):
    NAMES["localhost"] = ("127.0.0.1", "::1")
    judgement = await guard(**section).judge(EgressRequest(host, 5432, "GET", confined=()))
    assert (judgement.allowed, judgement.decision.reason) == (False, "egress_loopback")
    # Whoever is not confined keeps what it had.
    assert (await guard(**section).judge(EgressRequest(host, 5432, "GET"))).allowed


async def test_a_confined_agent_reaches_a_port_that_was_named_a_host_that_a_rule_names_and_everybody_else():
    assert (await guard().judge(EgressRequest("own.test", 5432, "GET", confined=(5432,)))).allowed
    named = {"rules": [{"id": "own", "action": "allow", "hosts": ["own.test"]}]}
    assert (await guard(**named).judge(EgressRequest("own.test", 5432, "GET", confined=()))).allowed
    assert (await guard().judge(EgressRequest("far.test", 5432, "GET", confined=()))).allowed


async def test_a_failure_is_a_denial():
    judgement = await guard().judge(EgressRequest("not-in-names.test", 80, "GET"))
    assert (judgement.allowed, judgement.decision.reason) == (False, "internal_error")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1", True), ("127.3.2.1", True), ("192.0.2.1", False), ("::ffff:127.0.0.1", True), ("name", False)],
)
def test_this_machine_s_addresses_are_known(text, expected):
    assert is_local(text) is expected


async def test_a_look_up_is_remembered_for_a_moment(monkeypatch):
    now, asked = [0.0], []
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: asked.append(a) or real(*a, **k))
    resolver = Resolver(lambda: now[0])
    assert "127.0.0.1" in await resolver.look_up("localhost", 80)
    await resolver.look_up("localhost", 80)
    assert len(asked) == 1
    now[0] = 60.0
    await resolver.look_up("localhost", 80)
    assert len(asked) == 2


async def nothing_is_looked_up(host: str, port: int) -> tuple[str, ...]:
    raise AssertionError(f"{host}:{port} was looked up")


def answering(**section) -> EgressGuard:
    policy = CompiledPolicy([], default="allow", egress=CompiledEgress(EgressPolicy.model_validate(section)))
    answered = {"interlock.internal": {80, 443}}
    return EgressGuard(lambda: policy, list, nothing_is_looked_up, answered=answered)


@pytest.mark.parametrize("section", [{}, {"default": "deny"}, {"default": "report"}, ALLOWLIST])
@pytest.mark.parametrize("port", [80, 443])
async def test_a_host_that_the_proxy_answers_for_is_allowed_without_an_address_to_dial(section, port):
    judgement = await answering(**section).judge(EgressRequest("interlock.internal", port, "POST"))
    assert judgement.allowed
    assert judgement.addresses == ()


async def test_a_rule_can_deny_it():
    for hosts in (["interlock.internal"], ["*.internal"]):
        rules = [{"id": "none", "action": "deny", "hosts": hosts}]
        judgement = await answering(rules=rules).judge(EgressRequest("interlock.internal", 80, "POST"))
        assert judgement.decision.rule == "none"


@pytest.mark.parametrize(
    ("request_", "proven"),
    [
        (EgressRequest("interlock.internal", 8080, "POST"), True),
        (EgressRequest("Interlock.Internal.", 8080, "POST"), True),
        (EgressRequest("interlock.internal", 80, "POST", ("127.0.0.1",)), True),
        (EgressRequest("interlock.internal", 80, "POST", ("192.0.2.1",)), False),
    ],
)
async def test_on_other_ports_and_at_claimed_addresses_the_name_is_refused_and_not_looked_up(request_, proven):
    judgement = await answering().judge(request_, proven=proven)
    assert "the proxy's own" in judgement.decision.message
    assert not judgement.allowed


async def test_a_longer_name_is_one_like_any_other():
    request = EgressRequest("interlock.internal.attacker.test", 80, "POST")
    assert (await answering(default="deny").judge(request)).decision.reason == "egress_default_deny"


async def test_where_proposals_are_off_the_name_is_not_looked_up():
    policy = CompiledPolicy([], default="allow", egress=CompiledEgress(EgressPolicy()))
    off = EgressGuard(lambda: policy, list, nothing_is_looked_up, answered={"interlock.internal": ()})
    judgement = await off.judge(EgressRequest("interlock.internal", 80, "POST"))
    assert "the proxy's own" in judgement.decision.message
    assert not judgement.allowed
