"""A plan skips rules and changes no decision by it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.model import Call, Outcome
from proxy.policy import decide as decide_module
from proxy.policy import rule_index as plan_module
from proxy.policy.compiled_rule import CompiledRule
from proxy.policy.decide import CompiledPolicy
from proxy.policy.eval_context import EvalContext
from proxy.policy.load import compile_sources, load_policy, load_sources
from proxy.policy.operators import OPERATORS
from proxy.policy.rule_index import INDEXES
from proxy.policy.rules import PolicyFile
from tests.support import case_tables

ROOT = Path(__file__).parent.parent.parent
TABLES = {name: case_tables.table(name) for name in case_tables.names()}


def compile_rules(rules, default="allow"):
    return CompiledPolicy(PolicyFile.model_validate({"version": 1, "rules": rules}).rules, default=default)


def call(arguments, tool="tool"):
    return Call("tools/call", "server", "agent", tool, arguments)


def decide_one_by_one(policy, asked):
    reading = policy.context_of(asked)
    hits = [hit for rule in policy.rules_for(asked) if (hit := rule.evaluate(reading)) is not None]
    return policy.conclude(asked, hits)


def in_cases(group):
    return [value for reason in group.keys() - {"id", "action", "when"} for value in group[reason]]


@pytest.mark.parametrize("table", TABLES)
def test_every_rule_of_the_adversarial_tables_at_once_decides_as_each_by_itself(table):
    groups = TABLES[table]
    both = [
        {"id": f"{group['id']}.{action}", "action": action, "mode": mode, "when": group["when"]}
        for group in groups
        for action, mode in (("deny", "shadow"), ("two_phase", "enforce"), ("allow", "shadow"))
    ]
    policy = compile_rules(both, default="deny")
    for value in (value for group in groups for value in in_cases(group)):
        asked = call(value if table == "arguments" else {"value": value})
        assert policy.decide(asked) == decide_one_by_one(policy, asked), value


@pytest.mark.parametrize("file", sorted(path.name for path in ROOT.glob("policies/*.yaml")))
def test_the_shipped_policies_decide_their_own_tests_as_one_by_one(file):
    policy = compile_sources(load_sources(ROOT / "policies" / file))
    for test in (test for rule in policy.rules.values() for test in rule.tests):
        asked = test.call.as_call()
        assert policy.decide(asked) == decide_one_by_one(policy, asked), asked


OPERANDS = {
    "equals": ["a", "A b", 1, 1.0, True, None, "", "1", "/etc", "évil"],
    "not_equals": ["a", 1, None],
    "in": [["a", "b"], [1, None], [False, "true"], [10**20], ["%41", "\u212b"]],
    "starts_with": ["a", ["/etc", "Evil"], "\u200b", "http"],
    "ends_with": ["b", ["passwd", ".COM"], "\u200b"],
    "contains": ["etc", ["drop table", "A"], "é"],
    "matches": ["^a", [r"\bdrop\s+table\b", "(?i)EVIL"], "(?P<n>b)$", "(?P<n>c)", r"\Qa.b", "[^x]{50,600}y", "é|^$"],
    "gt": [0, 1.5],
    "lte": [3],
    "exists": [True, False],
    "type": ["string", ["null", "integer"], "object"],
    "length": [3, {"gt": 4}],
    "path_under": ["/etc", ["/srv/a", "/opt"], "/", "**/.ssh", "/home/*/x", ".", "src", ["src", "/etc", "/a/**/b"]],
    "host_in": ["evil.com", ["*.evil.com", "10.0.0.1"], ".b", "api-*.evil.com", "*", "169.254.169.254"],
    "url_scheme": ["file", ["http", "ftp"]],
    "ip_class": ["loopback", ["metadata", "private"]],
    "cidr": ["10.0.0.0/8"],
    "command": ["curl", ["rm -rf", "git push"]],
}
ARGS = ["path", "arguments.path", "Text", "a.b", "list[*]", "**.path", "**", "path.**", "file_path", "list[0].path"]
ACTIONS = [
    {"action": "deny"},
    {"action": "deny", "severity": "high", "respond": "error"},
    {"action": "deny", "mode": "shadow"},
    {"action": "allow"},
    {"action": "allow", "mode": "shadow"},
    {"action": "two_phase"},
    {"action": "two_phase", "approval": "human"},
    {"action": "redact", "detectors": ["secrets"]},
]
TEXTS = [
    *("a", "A B", "ab", "/etc/passwd", "/ETC/x", "src/main.py", "./src", "/srv/a/b.txt", "/home/me/.ssh/id", "~/x"),
    *("..%2f..%2fetc", "%2565tc", "a%00b", "%ff", "/a/x/y/b/c", "**/*.py", "/e*/passwd", "C:\\etc", "/etc\u200b/x"),
    *("http://evil.com/x", "api-1.EVIL.com", "http://10.0.0.1", "0x7f.1", "http://a@b", "file:///etc/x", "evil.com."),
    *("drop  table x", "DROP TABLE", "curl x | sh", "git push -f", "$(rm -rf /)", "évil", "\uff45tc", "\u212b"),
    *('{"path": "/etc/x"}', '["a", {"path": "b"}]', '"/etc/y"', "{broken", '{"a":1,"a":2}', "", " a ", "1", "-1.0"),
    *("nan", "1e3", "x" * 5000 + "a", "/" + "a/" * 100, "%25" * 9 + "41", "a\0b", "a.b)|(?:.*"),
    *("\ud800", "x" * 5000 + "b", '["http://evil.com/x"]', '{"u": "10.0.0.1"}'),
]
BROKEN = [10**400, object(), {5: "x"}, float("inf"), b"a"]
SCALARS = [None, True, False, 0, 1, 1.0, 7, 10**20]
VALUES = st.recursive(
    st.sampled_from(TEXTS) | st.text(max_size=12) | st.sampled_from([None, True, False, 0, 1, 1.0, 7, 10**20, *BROKEN]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "Path", "text", "b", "file-path"]), inner, max_size=3)
    ),
    max_leaves=5,
)
ARGUMENTS = st.none() | st.dictionaries(
    st.sampled_from(["path", "PATH", "text", "Text", "a", "list", "filePath", "other", "p\u0430th"]), VALUES, max_size=4
)


@st.composite
def conditions(draw):
    names = draw(st.lists(st.sampled_from(sorted(OPERANDS)), min_size=1, max_size=2, unique=True))
    return {"arg": draw(st.sampled_from(ARGS)), **{name: draw(st.sampled_from(OPERANDS[name])) for name in names}}


WHENS = st.recursive(
    conditions(),
    lambda inner: (
        st.builds(lambda parts: {"any": parts}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda parts: {"all": parts}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda part: {"not": part}, inner)
    ),
    max_leaves=5,
)
RULES = st.lists(st.tuples(st.sampled_from(ACTIONS), st.none() | WHENS), min_size=1, max_size=8)


@given(RULES, st.sampled_from(["allow", "deny"]), st.lists(ARGUMENTS, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_any_rules_decide_any_call_as_one_by_one(rules, default, calls):
    made = [{"id": f"r{n}", **how} | ({} if when is None else {"when": when}) for n, (how, when) in enumerate(rules)]
    policy = compile_rules(made, default)
    for arguments in calls:
        assert policy.decide(call(arguments)) == decide_one_by_one(policy, call(arguments))


@pytest.mark.parametrize("operator", sorted(OPERANDS))
def test_many_conditions_of_one_kind_decide_every_value_as_one_by_one(operator):
    for arg in ("path", "a.b", "**"):
        conditions = [{"arg": arg, operator: operand} for operand in OPERANDS[operator]]
        rules = [{"id": f"r{n}", "action": "deny", "when": when} for n, when in enumerate(conditions)]
        policy = compile_rules(rules)
        for value in (*TEXTS, *SCALARS, *BROKEN, [], {}, ["a", 5], {"b": "/etc"}):
            asked = call({"path": value, "a": value})
            assert policy.decide(asked) == decide_one_by_one(policy, asked), (arg, value)


@pytest.mark.parametrize(
    "when",
    [
        {"arg": "**", "type": "integer", "path_under": "/etc"},
        {"all": [{"arg": "amount", "type": "integer"}, {"arg": "path", "path_under": "/etc"}]},
        {"any": [{"arg": "path", "path_under": "/etc"}, {"arg": "amount", "type": "integer"}]},
    ],
)
def test_a_condition_that_breaks_before_another_says_no_still_refuses_the_call(when):
    decision = compile_rules([{"id": "r", "action": "redact", "detectors": ["pii"], "when": when}]).decide(
        call({"path": "/srv", "amount": object()})
    )
    assert (decision.outcome, decision.reason) == (Outcome.DENY, "policy_error")


def test_redactions_come_in_the_order_of_their_rules_whether_they_have_conditions_or_not():
    redact = {"action": "redact", "detectors": ["pii"]}
    when = {"arg": "path", "path_under": "/etc"}
    rules = [{"id": "b", **redact, "when": when}, {"id": "a", **redact}, {"id": "c", **redact}]
    decision = compile_rules(rules).decide(call({"path": "/etc/x"}))
    assert [redaction.rule for redaction in decision.redactions] == ["a", "b", "c"]


def count_asked(monkeypatch, rules, arguments):
    asked = []
    test = CompiledRule.evaluate
    policy = compile_rules(rules)
    monkeypatch.setattr(CompiledRule, "evaluate", lambda rule, reading: asked.append(rule.id) or test(rule, reading))
    plan = policy.plan_for(call(arguments)).rules
    monkeypatch.setattr(plan_module, "_evaluate", lambda rule, reading: rule.evaluate(reading))
    plan.evaluate(EvalContext(arguments))
    return sorted(asked)


MANY = [
    {"id": "path", "action": "deny", "when": {"arg": "path", "path_under": ["/etc", "**/.ssh"]}},
    {"id": "text", "action": "deny", "when": {"any": [{"arg": "text", "matches": "x+"}, {"arg": "a", "equals": 1}]}},
    {"id": "both", "action": "deny", "when": {"all": [{"arg": "path", "path_under": "/"}, {"arg": "a", "gt": 1}]}},
    {"id": "here", "action": "deny", "when": {"arg": "amount", "gt": 5}},
    {"id": "not", "action": "deny", "when": {"not": {"arg": "path", "path_under": "/etc"}}},
    {"id": "other", "action": "allow", "when": {"arg": "path", "not_equals": "x"}},
]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ({}, ["not", "other"]),
        ({"path": "/srv/x"}, ["both", "not", "other"]),
        ({"path": "/srv/.ssh/x", "text": "yx"}, ["both", "not", "other", "path", "text"]),
        ({"a": 1, "amount": 1}, ["here", "not", "other", "text"]),
        ({"path": 5}, ["both", "not", "other", "path"]),
        ({"text": "\ud800"}, ["not", "other", "text"]),
    ],
)
def test_only_rules_that_may_match_are_asked(monkeypatch, arguments, asked):
    assert count_asked(monkeypatch, MANY, arguments) == asked


def test_a_condition_that_no_index_is_known_for_is_asked_every_time(monkeypatch):
    assert OPERATORS.keys() - INDEXES.keys() == {"not_equals"}
    monkeypatch.delitem(INDEXES, "path_under")
    assert count_asked(monkeypatch, MANY, {}) == ["both", "not", "other", "path"]


def test_the_rules_of_an_index_that_breaks_are_all_asked(monkeypatch):
    def build(_arg, _leaves):
        def index(_reading):
            raise RuntimeError("boom")

        return index

    monkeypatch.setitem(INDEXES, "path_under", build)
    policy = compile_rules([{"id": "d", "action": "deny", "when": {"arg": "path", "path_under": "/etc"}}])
    assert policy.decide(call({"path": "/etc/x"})).rule == "d"
    assert policy.decide(call({"path": "/srv/x"})).outcome is Outcome.ALLOW


def test_calls_of_tools_with_the_same_rules_share_a_plan_and_made_up_names_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(decide_module, "_MAX_BUCKETS", 10)
    policy = compile_rules(MANY)
    for number in range(35):
        assert policy.decide(call({"path": "/etc/x"}, tool=f"made-up-{number}")).rule == "path"
        assert len(policy._plans) == 1
        assert len(policy._prepared) <= 10


def test_made_up_names_that_each_meet_other_rules_do_not_pile_up_either(monkeypatch):
    monkeypatch.setattr(decide_module, "_MAX_PLANS", 5)
    globs = "abcdef"
    policy = compile_rules([{**MANY[0], "id": letter, "tools": [f"*{letter}*", "named"]} for letter in globs])
    policy.prepare()
    for number in range(1, 64):
        letters = "".join(letter for place, letter in enumerate(globs) if number >> place & 1)
        assert policy.decide(call({"path": "/etc/x"}, tool=letters)).matched == tuple(letters)
        assert len(policy._plans) <= 6
        assert len(policy._prepared) <= 6


def test_a_loaded_policy_has_the_plans_of_the_tools_that_it_names(tmp_path):
    rules = [{"id": f"r{n}", "action": "deny", "tools": [f"t{n % 3}"], "when": MANY[0]["when"]} for n in range(9)]
    (tmp_path / "policy.yaml").write_text(json.dumps({"version": 1, "default": "allow", "rules": rules}))
    policy = load_policy(tmp_path)
    prepared = dict(policy._plans)
    assert sorted(map(len, prepared)) == [0, 3, 3, 3]
    assert policy.decide(call({"path": "/etc/x"}, tool="t1")).matched == ("r1", "r4", "r7")
    assert policy._plans == prepared
