"""Rules that name other methods than tools/call."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.model import Call, Outcome
from proxy.policy.decide import CompiledPolicy
from tests.support.method_rules import POLICY, completion, sampled


@pytest.mark.parametrize(
    ("method", "arguments", "rule"),
    [
        ("resources/read", {"uri": "file:///secrets/a"}, "no-secrets-read"),
        ("resources/read", {"uri": "file:///x/..%2fsecrets/a"}, "no-secrets-read"),
        ("resources/read", {"uri": "file:///open/a"}, None),
        ("resources/subscribe", {"uri": "file:///secrets/a"}, None),
        ("tools/call", {"uri": "file:///secrets/a"}, None),
        ("prompts/get", {"name": "Admin"}, "no-admin-prompt"),
        ("prompts/get", {"name": "other", "arguments": {"name": "admin"}}, None),
        ("completion/complete", completion("token"), "no-guessing"),
        ("completion/complete", completion("city"), None),
        ("completion/complete", completion("token", "ref/resource"), None),
        ("response", sampled("-----BEGIN PRIVATE KEY-----"), "no-keys-sampled"),
        ("response", sampled("hello"), None),
        ("response", {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "BEGIN PRIVATE KEY"}}, None),
    ],
)
def test_a_rule_speaks_of_the_methods_it_names(method: str, arguments: dict[str, Any], rule: str | None):
    decision = POLICY.decide(Call(method, "s", "a", None, arguments))
    assert (decision.rule, decision.outcome) == (rule, Outcome.DENY if rule else Outcome.ALLOW)


@pytest.mark.parametrize("method", ["resources/read", "prompts/get", "completion/complete", "response"])
def test_what_a_default_of_deny_says_holds_for_other_methods_too(method: str):
    assert CompiledPolicy([], default="deny").decide(Call(method, "s", "a", None, {})).outcome is Outcome.DENY
