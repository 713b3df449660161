"""Which labels and flows apply: a restriction by any reading of a name, an exception only by all of them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.model import Call, Hints
from tests.support.flow_fixture import compiled

POLICY = """
version: 1
labels:
  - {id: wiki, servers: [wiki], tools: ["read_*"], gives: private}
  - {id: reading, annotations: {readOnlyHint: true}, gives: read}
  - {id: pages, hosts: ["*.blog.example"], gives: untrusted}
flows:
  - {id: out, from: [private, untrusted, read], to: {tools: [post], hosts: ["*"]}, within: 5m,
     except: {servers: [inside], hosts: [intranet.example]}, agents: ["bot*"],
     unless: {arg: to, ends_with: "@corp.example"}}
  - {id: bodies, from: private, to: {tools: [send], arguments: [body, "parts[*].text"]}, within: 1h}
rules:
  - {id: r, action: deny, tools: [run], when: {after: {tools: [write], where: {arg: path, ends_with: .sh}}, within: 2h}}
"""
FLOWS = compiled(POLICY).flows
assert FLOWS is not None


def call(server: str = "x", tool: str = "post", arguments: Any = None, **more: Any) -> Call:
    return Call(more.pop("method", "tools/call"), server, more.pop("agent", "bot"), tool, arguments or {}, **more)


def flows_of(subject: Call) -> list[str]:
    return [flow.rule.id for flow in compiled(POLICY).applying(subject).flows]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (call(), ["out"]),
        (call(tool="POST"), ["out"]),
        (call(tool="post\u200b"), ["out"]),
        (call("inside"), []),
        (call("inside.evil"), ["out"]),
        (call(agent="human"), []),
        (call(method="resources/read"), []),
        (call(tool="send"), ["bodies"]),
        (call(tool="other"), []),
    ],
)
def test_a_flow_applies_to_calls(subject: Call, expected: list[str]) -> None:
    assert flows_of(subject) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("evil.example", 1), ("intranet.example", 0), ("intranet.example:8443", 0), ("intranet.example.evil.example", 1)],
)
def test_a_flow_applies_to_hosts(host: str, expected: int) -> None:
    assert len(FLOWS.for_request(host, "bot").flows) == expected


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (call("wiki", "read_page"), ["wiki"]),
        (call("WIKI", "Read_Page"), ["wiki"]),
        (call("wiki", "write"), []),
        (call("wiki", "write", hints=Hints(read_only=True)), ["reading"]),
        (Call("tasks/result", "wiki", "bot", None, {}), ["wiki"]),
        (Call("tools/list", "wiki", "bot", None, {}), []),
    ],
)
def test_labels_apply_to_results(subject: Call, expected: list[str]) -> None:
    assert [label.rule.id for label in compiled(POLICY).applying(subject).labels] == expected


def test_labels_apply_to_pages_and_to_answers_of_unknown_calls() -> None:
    assert [label.rule.id for label in FLOWS.for_request("a.blog.example", "bot").labels] == ["pages"]
    assert FLOWS.for_request("blog.example.evil.example", "bot").labels == ()
    assert [label.rule.id for label in FLOWS.unmatched("wiki", "bot")] == ["reading", "wiki"]


@pytest.mark.parametrize(
    ("to", "spared"),
    [
        ("ann@corp.example", True),
        ("eve@evil.example", False),
        (["ann@corp.example", "eve@evil.example"], False),
        (5, False),
    ],
)
def test_unless_needs_every_value(to: Any, spared: bool) -> None:
    (flow,) = (flow for flow in FLOWS.flows if flow.rule.id == "out")
    assert flow.spares(call(arguments={"to": to})) is spared
    assert flow.spares(call()) is False


def test_only_the_named_arguments_are_looked_at() -> None:
    (flow,) = (flow for flow in FLOWS.flows if flow.rule.id == "bodies")
    sent = flow.outgoing(call(tool="send", arguments={"to": "a", "Body": "b", "parts": [{"text": "c"}]}))
    assert sorted(value for values in sent.values() for value in values) == ["b", "c"]  # type: ignore[union-attr]


def test_a_label_lasts_as_long_as_anything_asks_about_it() -> None:
    assert FLOWS.lasts(["private"]) == 3600
    assert FLOWS.lasts(["untrusted"]) == 300
    assert FLOWS.lasts(["unknown"]) == 0


def test_a_step_is_remembered_where_its_condition_may_hold() -> None:
    applying = compiled(POLICY).applying(call(tool="write"))
    (step,) = applying.steps
    assert step.lasts == 7200
    calls = [call(tool="write", arguments={"path": path}) for path in ("a.sh", "a.txt", 5)]
    assert [applying.steps_of(each) for each in calls] == [[step], [], [step]]


def test_rules_that_ask_need_the_history_and_refuse_without_it() -> None:
    policy = compiled(POLICY + "default: allow\n")
    assert policy.applying(call(tool="run")).needs_history
    assert policy.decide(call(tool="run")).reason == "policy_error"
