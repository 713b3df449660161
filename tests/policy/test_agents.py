"""Rules that name agents by claims."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.identity import Identity
from proxy.core.model import Call, EgressRequest
from proxy.errors import PolicyError
from proxy.policy.agents import ClaimMatch, compile_agents, describe, entries, names
from proxy.policy.explain import explain
from proxy.policy.lint import lint
from proxy.policy.load import load_policy
from proxy.policy.rules import AllowRule, DenyRule


def identity(provider: str = "okta", **claims: Any) -> Identity:
    return Identity(provider, "https://id", str(claims.get("sub", "")), repr(claims), claims)


def fits(agents: Any, who: Identity | None, agent: str = "bot") -> bool:
    return compile_agents(DenyRule(id="r", action="deny", agents=agents).agents)(agent, who)


GROUP = {"claim": "groups", "in": ["sre", "ops-*"]}


@pytest.mark.parametrize(
    ("agents", "who", "meant"),
    [
        (GROUP, identity(groups=["sre"]), True),
        (GROUP, identity(groups=["ops-eu"]), True),
        (GROUP, identity(groups=["SRE"]), False),
        (GROUP, identity(groups=[]), False),
        (GROUP, identity(), False),
        (GROUP, None, False),
        (GROUP | {"provider": "okta"}, identity(groups=["sre"]), True),
        (GROUP | {"provider": ["a", "b"]}, identity(groups=["sre"]), False),
        ({"claim": "groups", "not_in": ["sre"]}, identity(groups=["sre", "x"]), False),
        ({"claim": "groups", "not_in": ["sre"]}, identity(groups=["x"]), True),
        ({"claim": "groups", "not_in": ["sre"]}, None, True),
        ({"claim": "groups", "not_in": ["sre"], "provider": "okta"}, identity("evil", groups=["sre"]), True),
        (["other", GROUP], identity(groups=["sre"]), True),
        (["bot", GROUP], None, True),
        (["other"], identity(groups=["sre"]), False),
        (None, None, True),
        ({"claim": "act.sub", "in": ["bot"]}, identity(act={"sub": "bot"}), True),
        ({"claim": "sub", "in": ["alice"]}, identity(sub="alice", act={"sub": "bot"}), True),
    ],
)
def test_who_is_meant(agents: Any, who: Identity | None, meant: bool) -> None:
    assert fits(agents, who) is meant


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ("{claim: groups}", "write in: or not_in:, one of them"),
        ("{claim: groups, in: [a], not_in: [b]}", "write in: or not_in:, one of them"),
        ("{claim: groups, in: []}", "at least 1"),
        ("{claims: groups, in: [a]}", "claim"),
        ("[]", "at least 1"),
        ("[7]", "text"),
    ],
)
def test_a_mistake_is_told(tmp_path: Any, agents: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy(tmp_path, f"  - {{id: r, action: deny, agents: {agents}}}\n")
    assert said in str(caught.value)


def test_an_allow_relies_on_nothing_that_is_absent() -> None:
    with pytest.raises(ValueError, match="cannot rely on not_in"):
        AllowRule.model_validate({"id": "r", "action": "allow", "agents": {"claim": "groups", "not_in": ["x"]}})


def policy(tmp_path: Any, rules: str, more: str = "") -> Any:
    file = tmp_path / "policy.yaml"
    file.write_text(f"version: 1\ndefault: allow\nrules:\n{rules}{more}")
    return load_policy(file)


def test_agents_of_one_name_are_told_apart_in_what_is_cached(tmp_path: Any) -> None:
    made = policy(tmp_path, "  - {id: r, action: deny, agents: {claim: groups, in: [x]}}\n")
    for _ in range(2):
        for who, outcome in ((identity(groups=["x"]), "deny"), (identity(groups=["y"]), "allow"), (None, "allow")):
            assert made.decide(Call("tools/call", "s", "bot", "t", identity=who)).outcome == outcome


def test_limits_and_egress_know_claims_too(tmp_path: Any) -> None:
    limits = "limits:\n  - {id: l, count: 1, within: 1h, agents: {claim: groups, in: [x]}}\n"
    egress = "egress:\n  rules:\n    - {id: e, action: deny, hosts: [h.example], agents: {claim: groups, in: [x]}}\n"
    made = policy(tmp_path, "  - {id: r, action: deny, tools: [z]}\n", limits + egress)
    for who, charged in ((identity(groups=["x"]), 1), (identity(groups=["y"]), 0)):
        call = Call("tools/call", "s", "bot", "t", identity=who)
        assert len(made.decide(call).charges) == charged
        request = EgressRequest("h.example", 443, "GET", ("192.0.2.1",), "bot", identity=who)
        assert (made.egress.decide(request).rule == "e") == bool(charged)


def test_explain_says_which_claim_is_not_there(tmp_path: Any) -> None:
    made = policy(tmp_path, "  - {id: r, action: deny, agents: {claim: groups, in: [x]}}\n")
    assert explain(made, Call("tools/call", "s", "bot", "t")).passed_over == (
        ("r", "agents: nobody vouches for the agent, so it has no claim 'groups'"),
    )
    ((_, why),) = explain(made, Call("tools/call", "s", "bot", "t", identity=identity(groups=["y"]))).passed_over
    assert why == "agents: its claim 'groups' is ['y']"


def test_describe_of_names_speaks_of_globs() -> None:
    assert describe(["a*"], None) == "no glob fits"
    assert (entries(None), names([ClaimMatch.model_validate(GROUP), "a"])) == ((), ["a"])


def test_lint_compares_claims_only_with_the_same(tmp_path: Any) -> None:
    claim = "{claim: groups, in: [x]}"
    rules = f"  - {{id: a, action: allow, agents: {claim}}}\n"
    same = policy(tmp_path, rules + f"  - {{id: d, action: deny, agents: {claim}}}\n")
    other = policy(tmp_path, rules + "  - {id: d, action: deny, agents: {claim: groups, in: [y]}}\n")
    shadowed = [
        [one.rule for one in lint(list(made.rules.values()), "deny") if one.kind == "shadowed"]
        for made in (same, other)
    ]
    assert shadowed == [["a"], []]
