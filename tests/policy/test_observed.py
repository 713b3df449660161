"""Rules on what local servers are observed to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.core.acts import Act
from proxy.core.model import Call
from proxy.errors import PolicyError
from proxy.policy.explain import explain_act
from proxy.policy.lint import lint_observed
from proxy.policy.load import load_policy
from proxy.policy.observed import CompiledObserved, ObservedRule, TestAct
from proxy.policy.rule_tests import run_act_tests

CALL = Call("tools/call", "files", "bot", "read")


def rule(**fields: Any) -> ObservedRule:
    given = {"id": "r", "on": "observed", "action": "withhold", "acts": ["fs.read"], **fields}
    return ObservedRule.model_validate(given)


def met(act: Act, *rules: ObservedRule, phase: Any = "call", call: Call = CALL) -> list[str]:
    return [each.rule for each in CompiledObserved(rules, ("/home/me",)).judge(act, phase, call)]


READ = Act("fs.read", "open", "/x")
RUNS_CURL = {"acts": ["exec"], "when": {"arg": "command", "command": ["curl"]}}
BELOW_TMP = {"acts": ["exec"], "when": {"arg": "program", "path_under": ["/tmp"]}}
MAIL = {"acts": ["connect"], "when": {"arg": "port", "in": [22, 25]}}
SHELL = Act("proc.exec", "exec", "/bin/sh", argv=("sh", "-c", "true; curl x"))
UNDER_SSH = {"arg": "path", "path_under": ["~/.ssh"]}
NOT_OURS = {"not": {"arg": "host", "host_in": ["*.example.com", "127.0.0.1"]}}


@pytest.mark.parametrize(
    ("fields", "act", "matches"),
    [
        ({}, Act("fs.read", "open", "/x"), True),
        ({}, Act("fs.write", "open", "/x"), False),
        ({"when": UNDER_SSH}, Act("fs.read", "open", "/home/me/.ssh/id"), True),
        ({"when": UNDER_SSH}, Act("fs.read", "list", "/home/me/.ssh"), True),
        ({"when": UNDER_SSH}, Act("fs.read", "open", "/home/me/.sshx"), False),
        ({"when": UNDER_SSH}, Act("fs.read", "open", "/home/me/.ssh/id", error="EACCES"), True),
        ({"when": UNDER_SSH}, Act("fs.read", "open", "/home/me/.ssh/id", error="ENOENT"), False),
        ({"when": UNDER_SSH}, Act("fs.read", "open", None), False),
        ({"acts": ["unlink"]}, Act("fs.delete", "unlink", "/x"), True),
        ({"acts": ["unlink"]}, Act("fs.delete", "rename", "/x"), False),
        ({"acts": ["fs.delete"]}, Act("fs.delete", "rename", "/x"), True),
        ({"acts": ["exec"]}, Act("exec.fileless", "exec", "/memfd:x"), True),
        (
            {"acts": ["exec"], "when": {"arg": "command", "command": ["curl"]}},
            Act("proc.exec", "exec", "/bin/sh", argv=("sh", "-c", "true; curl x")),
            True,
        ),
        (
            {"acts": ["exec"], "when": {"arg": "command", "command": ["curl"]}},
            Act("proc.exec", "exec", "/bin/ls", argv=("ls",)),
            False,
        ),
        (
            {"acts": ["exec"], "when": {"arg": "command", "command": ["curl"]}},
            Act("proc.exec", "exec", argv=("ls", "x…"), partial=True),
            True,
        ),
        (
            {"acts": ["exec"], "when": {"arg": "program", "path_under": ["/tmp"]}},
            Act("proc.exec", "exec", "/tmp/a", argv=("a",)),
            True,
        ),
        ({"acts": ["connect"], "when": NOT_OURS}, Act("net.connect", "connect", None, "10.0.0.1", 443), True),
        ({"acts": ["connect"], "when": NOT_OURS}, Act("net.connect", "connect", None, "127.0.0.1", 443), False),
        ({"acts": ["dns"], "when": NOT_OURS}, Act("net.dns", "query", None, "api.example.com"), False),
        ({"acts": ["dns"], "when": NOT_OURS}, Act("net.dns", "query", None, "example.com.evil"), True),
        (
            {"acts": ["connect"], "when": {"arg": "port", "in": [22, 25]}},
            Act("net.connect", "connect", None, "10.0.0.1", 25),
            True,
        ),
    ],
)
def test_what_a_rule_is_about(fields: dict[str, Any], act: Act, matches: bool) -> None:
    assert bool(met(act, rule(**fields))) is matches


@pytest.mark.parametrize(
    ("fields", "phase", "call", "matches"),
    [
        ({}, "call", CALL, True),
        ({}, "ambient", CALL, True),
        ({}, "startup", CALL, False),
        ({"during": ["startup"]}, "startup", CALL, True),
        ({"during": ["calls"]}, "ambient", CALL, False),
        ({"tools": ["read"]}, "call", CALL, True),
        ({"tools": ["write"]}, "call", CALL, False),
        ({"tools": ["read"]}, "call", Call("tools/call", "files", "bot", "READ"), True),
        ({"tools": ["read"]}, "call", Call("resources/read", "files", "bot"), False),
        ({"tools": ["write"]}, "ambient", CALL, True),
        ({"servers": ["other"]}, "call", CALL, False),
        ({"agents": ["b*"]}, "call", CALL, True),
        ({"agents": ["x"]}, "call", CALL, False),
    ],
)
def test_whom_a_rule_is_about(fields: dict[str, Any], phase: Any, call: Call, matches: bool) -> None:
    assert bool(met(READ, rule(**fields), phase=phase, call=call)) is matches


def test_an_act_that_cannot_be_judged_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = CompiledObserved([rule(when=UNDER_SSH)])

    def fail(_: Any) -> int:
        raise RuntimeError

    monkeypatch.setattr(rules.compiled[0], "_test", fail)
    assert [each.rule for each in rules.judge(READ, "call", CALL)] == ["r"]


def test_only_rules_that_withhold_make_answers_wait() -> None:
    assert CompiledObserved([rule(servers=["files"])]).holds_answers("files")
    assert not CompiledObserved([rule(servers=["files"])]).holds_answers("other")
    assert not CompiledObserved([rule(action="tell"), rule(id="s", mode="shadow")]).holds_answers("files")
    assert not CompiledObserved()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("acts: [fs.reed]", "is not allowed here"),
        ("acts: [], when: {arg: path, path_under: [/x]}", "at least 1"),
        ("acts: [exec], when: {arg: arguments.x, equals: 1}", "an act has no"),
        ("acts: [exec], when: {after: {tools: [a]}}", "after: is about calls"),
        ("acts: [exec], tests: [{seen: {act: exec}, expect: tell}]", "expect 'withhold' or 'no_match'"),
        ("acts: [exec], methods: [x]", "no field 'methods'"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, fields: str, said: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"version: 1\nrules:\n  - {{id: a, on: observed, action: withhold, {fields}}}\n")
    with pytest.raises(PolicyError, match=said) as caught:
        load_policy(file)
    assert f"{file}:3:" in str(caught.value)


def test_rules_on_acts_decide_no_calls_and_are_in_shadow_with_their_file(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("version: 1\nmode: shadow\nrules: [{id: a, on: observed, action: deny, acts: [read]}]\n")
    policy = load_policy(file)
    assert policy.rules == {}
    assert [each.shadow for each in policy.observed.judge(READ, "call", CALL)] == [True]


def test_tests_beside_a_rule_are_run_and_explained(tmp_path: Path) -> None:
    tests = [
        {"seen": {"act": "read", "path": "/home/me/.ssh/a"}, "expect": "withhold"},
        {"seen": {"act": "read", "path": "/home/me/.ssh/a", "during": "startup"}, "expect": "no_match"},
        {"seen": {"act": "read", "path": "/x"}, "expect": "withhold"},
    ]
    made = rule(when=UNDER_SSH, tests=tests)
    assert [result.passed for result in run_act_tests([made])] == [True, True, False]
    assert [remark.kind for remark in lint_observed([made, rule(id="untested")])] == ["untested"]
    file = tmp_path / "p.yaml"
    file.write_text(
        "version: 1\nrules: [{id: a, on: observed, action: deny, acts: [read], when: {arg: path, path_under: [/x]}}]\n"
    )
    policy = load_policy(file)
    (trace,) = explain_act(policy, TestAct(act="read", path="/x/y"))
    assert (trace.matched, trace.why) == (True, "its condition holds")
    (trace,) = explain_act(policy, TestAct(act="read", path="/y"))
    assert not trace.matched
    (trace,) = explain_act(policy, TestAct(act="read", path="/x/y", during="startup"))
    assert trace.why == "is about other calls, servers or times"
