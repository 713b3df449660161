"""An index returns every rule whose condition may hold, and leaves out those that surely do not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.policy.arg_path import parse_arg
from proxy.policy.eval_context import EvalContext
from proxy.policy.operators import OPERATORS
from proxy.policy.rule_index import INDEXES, Leaf

ARG = parse_arg("value")
OPERANDS = {
    "equals": ["prod", 5, True, "x y"],
    "starts_with": ["sk-", "a", "%41"],
    "ends_with": [".exe", "b", ["c", "dd"]],
    "contains": ["drop", "a", ["x", "yy"]],
    "matches": ["^a+$", "b", "x|y"],
    "path_under": ["/etc", "/", ".", "src", "**/.ssh", "/home/*/x", ["/a", "/b"]],
    "host_in": ["example.com", "*.example.com", ".com", "a*.org", "10.0.0.1"],
    "ip_class": ["loopback", "private", "public", "metadata"],
    "command": ["curl", "rm -rf", "mkfs*", "git push"],
}
VALUES = [
    *("prod", "PROD", 5, "5", "5.0", True, "true", "sk-1", "SK%2d1", "a.exe", "b", "", " a ", "aaa", "A", "dd", "yy"),
    *("/etc/x", "/ETC", "etc/x", "../etc", "/a/.ssh/id", "/home/me/x", "src/a", "/tmp/..%2fetc", "~/x", "**/etc/*.py"),
    *("/e*/x", "http://example.com/", "a.example.com", "http://0x7f.1/", "http://[::ffff:10.0.0.1]/", "abc.org"),
    *("http://good.com\\@evil.com/", "curl x", "sudo curl", "rm -r -f /", "mkfs.ext4 x", "$X", "echo hi", "git push"),
    *(["a", "drop"], [], {"a": 1}, '["/etc/x"]', '{"a": "prod"}', None, 10**30, 0.5),
]


def left_out_but_matching(operator, value):
    operands = OPERANDS[operator]
    found = INDEXES[operator](ARG, [Leaf(operand, n) for n, operand in enumerate(operands)])(
        EvalContext({"value": value})
    )
    for number, operand in enumerate(operands):
        context = EvalContext({"value": value})
        if (OPERATORS[operator](ARG, operand)(context) or context.unknown is not None) and number not in found:
            yield operand


@pytest.mark.parametrize("operator", OPERANDS)
def test_a_rule_that_an_index_leaves_out_does_not_match(operator):
    assert {repr(value): wrong for value in VALUES if (wrong := list(left_out_but_matching(operator, value)))} == {}


@given(st.sampled_from(sorted(OPERANDS)), st.text(st.characters(codec="utf-8"), max_size=20))
@settings(max_examples=200, deadline=None)
def test_nor_does_it_for_any_text(operator, value):
    assert list(left_out_but_matching(operator, value)) == []


@pytest.mark.parametrize(
    ("operator", "operands", "value", "found"),
    [
        ("path_under", ["/etc", "/srv"], "/srv/x", {1}),
        ("matches", ["^a", "^b"], "beta", {1}),
        ("equals", ["a", "b"], "B", {1}),
        ("starts_with", ["a", "b"], "bc", {1}),
        ("ends_with", ["a", "b"], "ab", {1}),
        ("contains", ["x", "b"], "abc", {1}),
        ("command", ["curl", "wget"], "sudo wget x", {1}),
        ("host_in", ["a.com", "*.b.com"], "https://x.b.com/", {1}),
        ("ip_class", ["private", "loopback"], "http://127.1/", {1}),
        ("gt", [1, 2], 0, {0, 1}),
    ],
)
def test_an_index_leaves_out_what_surely_does_not_hold(operator, operands, value, found):
    index = INDEXES[operator](ARG, [Leaf(operand, number) for number, operand in enumerate(operands)])
    assert set(index(EvalContext({"value": value}))) == found
