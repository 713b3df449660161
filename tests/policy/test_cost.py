"""A value made to be slow is answered in time all the same."""

import json
import time
from pathlib import Path

import pytest

from proxy.core.model import Call
from proxy.policy import arg_path, path_operator
from proxy.policy.decide import CompiledPolicy
from proxy.policy.load import load_policy
from proxy.policy.rules import PolicyFile
from proxy.redact import builtin
from tests.support.machine_pace import slowness

LIMIT = 1.5
RULES = [
    {"id": f"r-{name}", "action": "deny", "when": {"arg": "**", name: operand}}
    for name, operand in {
        "path_under": "/nowhere/at/all",
        "host_in": "nowhere.invalid",
        "command": "nothing",
        "command_path_under": "/nowhere/at/all",
        "command_host_in": "nowhere.invalid",
        "matches": "(a+)+$",
        "contains": "impossible",
    }.items()
]
POLICY = CompiledPolicy(PolicyFile.model_validate({"version": 1, "rules": RULES}).rules, default="allow")
SIZE = 60_000


@pytest.mark.parametrize(
    "value",
    [
        "[" * SIZE,
        "{" * SIZE,
        "(" * SIZE,
        "$(" * (SIZE // 2),
        "`" * SIZE,
        "`a`" * (SIZE // 3),
        "$(a)" * (SIZE // 4),
        "${a:-`b`}" * (SIZE // 9),
        "echo <<X\n" + "$(a)`b`" * (SIZE // 7) + "\nX",
        "$((" * (SIZE // 3),
        "{a,b}" * (SIZE // 5),
        "a;" * (SIZE // 2),
        "sudo " * (SIZE // 5) + "ls",
        "bash -c " * 5000,
        "'" + "\\" * SIZE,
        "/a/.." * 800,
        "/.." * 1300,
        "a1:" * 1300,
        "../" * 1300,
        "%25" * 1300 + "2f",
        "%" * SIZE,
        "%25" * (SIZE // 3),
        "http://" * 1000,
        "a:" * 4000,
        "=//a" * 2000,
        "a@" * 4000,
        "." * 8000,
        "\u200b" * SIZE,
        "\ufdfa" * 10_000,
        "a" * 1_000_000 + "!",
        json.dumps(["/x"] * 15_000),
        json.dumps(json.dumps(json.dumps(["\\" * 2000]))),
    ],
    ids=range(32),
)
def test_a_hostile_value_does_not_stall_a_decision(value):
    start = time.process_time()
    POLICY.decide(Call("tools/call", "s", "a", "t", {"value": value}))
    assert time.process_time() - start < LIMIT * slowness()


def test_a_great_many_values_do_not_stall_a_decision():
    start = time.process_time()
    POLICY.decide(Call("tools/call", "s", "a", "t", {"value": [{"a": "x"}] * 50_000}))
    assert time.process_time() - start < LIMIT * slowness()


@pytest.mark.parametrize("value", [{"a": [0] * 100}, '{"a": 1, "a": 2}', {"a": 1}], ids=["many", "ambiguous", "fine"])
def test_a_call_is_gone_through_once_however_many_names_are_looked_for_in_it(monkeypatch, value):
    descents = []
    descend = arg_path._descend
    monkeypatch.setattr(arg_path, "MAX_NODES", 50)
    monkeypatch.setattr(arg_path, "_descend", lambda node, *, last: descents.append(last) or descend(node, last=last))
    rules = [{"id": f"r{n}", "action": "deny", "when": {"arg": f"**.n{n}", "path_under": "/x"}} for n in range(9)]
    policy = CompiledPolicy(PolicyFile.model_validate({"version": 1, "rules": rules}).rules, default="allow")
    decision = policy.decide(Call("tools/call", "s", "a", "t", {"value": value}))
    assert decision.reason == ("default_allow" if value == {"a": 1} else "ambiguous_value")
    assert descents == [False]


def test_patterns_are_taken_apart_once_however_many_rules_may_reach_what_they_name(monkeypatch):
    made = []
    reach_of = path_operator.reach_of
    monkeypatch.setattr(path_operator, "reach_of", lambda *patterns: made.append(patterns) or reach_of(*patterns))
    rules = [{"id": f"r{n}", "action": "deny", "when": {"arg": "**", "path_under": f"/srv/a{n}"}} for n in range(9)]
    policy = CompiledPolicy(PolicyFile.model_validate({"version": 1, "rules": rules}).rules, default="allow")
    decision = policy.decide(Call("tools/call", "s", "a", "t", {"value": [f"/s*v/*/x{n}" for n in range(20)]}))
    assert len(decision.matched) == len(rules)
    assert len(made) == 1


SHIPPED = load_policy(Path("policies/default.yaml"), builtin())


@pytest.mark.parametrize(
    "line",
    [
        *("a " * 32_000, "rm -r x;" * 8_000, "a|" * 32_000, "ls\n" * 21_000, "c^u\\r " * 10_000, "foo 'a b' " * 6_000),
        *("$(" * 21_000 + ")" * 21_000, "eval " * 13_000, "env " * 16_000, "xargs " * 10_000, "sh -c " * 10_000),
        *("git -c a=b " * 5_900, "echo a|tee b;" * 5_000, "cat " + "*/" * 32_000, "a[" * 32_000, "`" * 65_000),
        *("alias a='b c';" * 4_600, "cat " + "${x:-" * 9_000 + "}" * 9_000, "\\\n" * 32_000),
    ],
    ids=range(19),
)
def test_a_long_command_line_is_judged_in_time_by_the_shipped_policy(line):
    SHIPPED.decide(Call("tools/call", "s", "a", "shell", {"command": "ls"}))
    start = time.process_time()
    SHIPPED.decide(Call("tools/call", "s", "a", "shell", {"command": line}))
    # About 0.1 s where nothing else runs; the machine of a test may be slow.
    assert time.process_time() - start < slowness()


def test_a_line_with_more_commands_than_can_be_judged_is_ambiguous():
    decision = SHIPPED.decide(Call("tools/call", "s", "a", "shell", {"command": "ls x;" * 600}))
    assert (decision.outcome, decision.reason) == ("deny", "ambiguous_value")
    assert SHIPPED.decide(Call("tools/call", "s", "a", "shell", {"command": "ls x;" * 400})).outcome == "allow"
