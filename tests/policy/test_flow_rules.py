"""Labels and flows as files have them: what is accepted, and what is told of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import PolicyError
from proxy.policy.conditions import earlier_in
from proxy.policy.incoming import IncomingRule
from proxy.policy.lint import lint_flows
from proxy.policy.load import load_policy, load_sources

GOOD = """
version: 1
labels:
  - {id: mail, tools: ["read_*"], gives: [untrusted, private]}
flows:
  - {id: stays, from: private, to: {tools: [send], hosts: ["*"]}, by: content, within: 90s}
rules:
  - {id: later, action: deny, tools: [run], when: {after: {tools: [write]}, within: 10m}}
"""


def load(tmp_path: Path, text: str):
    (tmp_path / "policy.yaml").write_text(text)
    return load_sources(tmp_path / "policy.yaml")


def test_durations_are_read(tmp_path: Path) -> None:
    (source,) = load(tmp_path, GOOD)
    assert source.content.flows[0].within == 90
    (after,) = earlier_in(source.content.rules[0].when)
    assert after.within == 600
    assert source.content.labels[0].labels == ("untrusted", "private")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("within: 90s", "within: soon", "write it like 30s, 10m, 12h or 2d"),
        ("within: 90s", "within: -1", "greater than 0"),
        ("within: 90s", "wihtin: 90s", "did you mean 'within'?"),
        ("gives: [untrusted, private]", "gives: Private", "pattern"),
        ("gives: [untrusted, private]", "give: private", "did you mean 'gives'?"),
        ("by: content", "by: contents", "did you mean 'content'?"),
        ("by: content", "run: 40", "run: needs by: content"),
        ("by: content", "action: two_phase", "a plain request cannot wait for people"),
        ("by: content", "approval: {how: hold}", "approval: needs action: two_phase"),
        ('to: {tools: [send], hosts: ["*"]}', "to: {}", "name servers, tools"),
        ('to: {tools: [send], hosts: ["*"]}', 'to: {hosts: ["*"]}, unless: {arg: a, equals: 1}', "has none"),
        ('hosts: ["*"]', "arguments: ['a[']", "to.arguments"),
        ("after: {tools: [write]}", "after: {}", "names a call"),
        ("after: {tools: [write]}", "after: {tools: [write], labels: [private]}", "not both"),
        ("after: {tools: [write]}", "after: {tools: [w], where: {after: {tools: [x]}}}", "inside after"),
        ("id: stays", "id: later", "already used"),
        ("within: 90s", "within: 90s, tests: [{after: {tool: a}, call: {tool: b}, expect: report}]", "expect 'deny'"),
        ("within: 90s", "within: 90s, tests: [{after: {tool: a}, expect: deny}]", "a call or a request"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in GOOD
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, GOOD.replace(old, new))
    assert told in str(caught.value)
    assert "policy.yaml:" in str(caught.value)


def test_remarks_on_labels_that_nobody_gives_or_wants(tmp_path: Path) -> None:
    (source,) = load(tmp_path, GOOD.replace("from: private", "from: privat"))
    content = source.content
    remarks = {(remark.rule, remark.kind): remark.message for remark in lint_flows(content.labels, content.flows, [])}
    assert "did you mean 'private'?" in remarks["stays", "unknown-label"]
    assert ("mail", "no-effect") in remarks
    assert ("stays", "untested") in remarks
    incoming = [IncomingRule.model_validate({"id": "i", "action": "flag", "labels": ["privat"]})]
    kinds = [remark.kind for remark in lint_flows(content.labels, content.flows, [], incoming)]
    assert "unknown-label" not in kinds


def test_several_files_are_one_policy(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text("version: 1\nlabels: [{id: more, servers: [x], gives: private}]\n")
    flows = load_policy(tmp_path).flows
    assert flows is not None
    assert [label.rule.id for label in flows.labels] == ["mail", "more"]
