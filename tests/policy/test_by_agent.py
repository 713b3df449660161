"""Two versions in one process: one decides all of a call, chosen by the agent before anything is decided."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.model import Call, EgressRequest, Outcome
from proxy.policy.by_agent import PolicyByAgent, agentless, differing
from proxy.policy.decide import CompiledPolicy
from tests.rollout.fixtures import bundle

EGRESS = "egress: {rules: [{id: no-evil, action: deny, hosts: [evil.example]}]}\n"
INCOMING = "incoming: [{id: in, action: flag, on: [results]}]\n"


def compiled(version: str, *denied: str, **more: Any) -> CompiledPolicy:
    return bundle(*denied, **more).compile(version)


def call(agent: str, tool: str) -> Call:
    return Call("tools/call", "s", agent, tool, {})


@pytest.fixture
def both() -> PolicyByAgent:
    return PolicyByAgent(compiled("v1", "shell"), compiled("v2", "rm", more=EGRESS), ["build-*", "one"])


@pytest.mark.parametrize(
    ("agent", "tool", "outcome", "version"),
    [
        ("build-7", "shell", Outcome.ALLOW, "v2"),
        ("build-7", "rm", Outcome.DENY, "v2"),
        ("one", "rm", Outcome.DENY, "v2"),
        ("ones", "rm", Outcome.ALLOW, "v1"),
        ("mail", "shell", Outcome.DENY, "v1"),
        ("mail", "rm", Outcome.ALLOW, "v1"),
    ],
)
def test_an_agent_gets_all_of_one_version(
    both: PolicyByAgent, agent: str, tool: str, outcome: Outcome, version: str
) -> None:
    asked = call(agent, tool)
    decision = both.decide(asked)
    assert (decision.outcome, decision.policy_version) == (outcome, version)
    assert both.decide_beyond(asked, {}).policy_version == version
    assert both.could_allow(asked) == (outcome is Outcome.ALLOW)
    assert both.governs(asked) == "never"
    assert not both.offers_task(asked)
    assert bool(both.rules_for(asked)) == (outcome is Outcome.DENY)
    assert both.conclude(asked, []).policy_version == version


def test_without_an_agent_the_stricter_outcome_counts(both: PolicyByAgent) -> None:
    """Neither version is known to be stricter: what either denies is denied."""
    for tool in ("shell", "rm"):
        assert both.decide(call("", tool)).outcome is Outcome.DENY
        assert both.decide_beyond(call("", tool), {}).outcome is Outcome.DENY
    assert both.decide(call("", "ls")).outcome is Outcome.ALLOW
    assert both.egress.decide(EgressRequest("evil.example", 443)).outcome is Outcome.DENY


def test_destinations_are_judged_by_the_agents_version(both: PolicyByAgent) -> None:
    judged = {
        agent: both.egress.decide(EgressRequest("evil.example", 443, agent=agent)) for agent in ("build-1", "mail")
    }
    assert judged["build-1"].outcome is Outcome.DENY
    assert judged["mail"].outcome is Outcome.ALLOW
    assert [judged[agent].policy_version for agent in ("build-1", "mail")] == ["v2", "v1"]
    assert not both.egress.names(judged["mail"])


def test_what_comes_in_is_screened_by_the_agents_version() -> None:
    policy = PolicyByAgent(compiled("v1"), compiled("v2", more=INCOMING), ["b"])
    assert policy.incoming
    asked = {agent: len(policy.incoming.asked("results", "s", agent)) for agent in ("b", "a", "")}
    assert asked == {"b": 1, "a": 0, "": 1}


def test_a_response_without_a_call_gets_the_redactions_of_both() -> None:
    one, two = (
        f"rules: [{{id: {name}, action: redact, tools: ['*'], on: [result], detectors: [{name}]}}]\n"
        for name in ("secrets", "pii")
    )
    policy = PolicyByAgent(compiled("v1", more=one), compiled("v2", more=two), ["b"])
    assert {redaction.rule for redaction in policy.unmatched("s").redactions} == {"secrets", "pii"}


def test_the_store_is_tried_where_either_needs_it() -> None:
    phased = "rules: [{id: t, action: two_phase, tools: [pay]}]\n"
    assert PolicyByAgent(compiled("v1"), compiled("v2", more=phased), ["b"]).has_two_phase
    assert not PolicyByAgent(compiled("v1"), compiled("v2"), ["b"]).has_two_phase


def test_what_cannot_be_judged_is_denied_by_either_version(both: PolicyByAgent) -> None:
    for agent in ("mail", "build-1"):
        broken = Call("tools/call", "s", agent, ["not a name"], {})  # type: ignore[arg-type]
        assert both.decide(broken).outcome is Outcome.DENY


def test_its_version_is_that_of_the_pair(both: PolicyByAgent) -> None:
    assert (both.version, both.versions) == ("v1+v2", ("v1", "v2"))


@pytest.mark.parametrize(
    ("more", "section"),
    [
        ("pins: {mode: enforce}\n", "pins"),
        ("labels: [{id: l, tools: [a], gives: [secret]}]\n", "labels"),
        (EGRESS, None),
        (INCOMING, None),
        ("limits: [{id: l, tools: [a], count: 1, within: 1h}]\n", None),
    ],
)
def test_sections_that_hold_for_a_whole_proxy_may_not_differ(more: str, section: str | None) -> None:
    said = differing(agentless(bundle("a").sources()), agentless(bundle("a", more=more).sources()))
    assert said == ([section] if section else [])
