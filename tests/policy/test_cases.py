"""The adversarial tables of tests/cases, each value against its rule."""

import pytest

from proxy.core.model import Call
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile
from tests.support import case_tables

TABLES = case_tables.names()
RULE_FIELDS = {"id", "action", "when"}


def groups():
    for table in TABLES:
        for group in case_tables.table(table):
            yield pytest.param(table, group, id=f"{table}:{group['id']}")


def compile_group(group):
    default = "allow" if group["action"] == "deny" else "deny"
    rule = {name: group[name] for name in RULE_FIELDS}
    content = PolicyFile.model_validate({"version": 1, "rules": [rule]})
    return CompiledPolicy(content.rules, default=default)


def cases(table, group):
    for reason in group.keys() - RULE_FIELDS:
        for value in group[reason]:
            yield reason, value if table == "arguments" else {"value": value}


@pytest.mark.parametrize(("table", "group"), list(groups()))
def test_every_case_gets_its_reason(table, group):
    policy = compile_group(group)
    wrong = []
    for reason, arguments in cases(table, group):
        decision = policy.decide(Call("tools/call", "server", "agent", "tool", arguments))
        if decision.reason != reason:
            wrong.append(f"{arguments!r}: {decision.reason} ({decision.message}), expected {reason}")
    assert not wrong, "\n".join(wrong)


def test_the_tables_hold_at_least_150_cases_for_each_kind_of_rule_that_can_be_fooled():
    counts = {}
    for table in TABLES:
        for group in case_tables.table(table):
            counts[table] = counts.get(table, 0) + sum(1 for _ in cases(table, group))
    assert counts["paths"] >= 150
    assert counts["hosts"] >= 150
    assert counts["commands"] >= 150
