"""What came before in a replay; and that a rule which asks is explained and tested as with nothing before."""

from proxy.core.model import Call
from proxy.policy.explain import explain
from proxy.policy.past import Past
from proxy.policy.replay import replay
from tests.support.flow_fixture import compiled

POLICY = """
version: 1
default: allow
labels: [{id: mail, tools: [read], gives: untrusted}]
flows: [{id: no-pay, from: untrusted, to: {tools: [pay]}, within: 10m}]
rules: [{id: r, action: deny, tools: [run], when: {after: {tools: [write]}, within: 5m}}]
"""


def event(tool: str, time: float, agent: str = "bot") -> dict[str, object]:
    return {"kind": "decided", "decision": "allow", "method": "tools/call", "tool": tool, "time": time, "agent": agent}


def test_the_newest_within_the_time_counts() -> None:
    past = Past(100)
    past.add(Call("tools/call", "s", "a", "t"), "c", ["x"])
    past.now = 150
    assert past.latest(frozenset({"x"}), 50) is not None
    assert past.latest(frozenset({"x"}), 49) is None
    assert past.latest(frozenset({"y"}), 50) is None


def test_a_replay_remembers_what_came_before() -> None:
    events = [
        *(event("run", 0), event("write", 1), event("run", 2), event("run", 400), event("run", 3, "other")),
        *(event("pay", 500), event("read", 501), event("pay", 502), event("pay", 2000)),
    ]
    found = [(change.time, change.now_rule) for change in replay(compiled(POLICY), events).changes]
    assert found == [(2, "r"), (502, "no-pay")]


def test_without_a_past_nothing_came_before() -> None:
    explanation = explain(compiled(POLICY), Call("tools/call", "s", "a", "run", {}))
    assert explanation.decision.reason == "default_allow"
