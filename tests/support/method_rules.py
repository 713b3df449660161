"""A policy over other methods than tools/call, and what they are asked with."""

from __future__ import annotations

from typing import Any

from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile

RULES = [
    {
        "id": "no-secrets-read",
        "action": "deny",
        "methods": ["resources/read"],
        "when": {"arg": "uri", "path_under": "/secrets"},
    },
    {"id": "no-admin-prompt", "action": "deny", "methods": ["prompts/get"], "when": {"arg": "name", "equals": "admin"}},
    {
        "id": "no-guessing",
        "action": "deny",
        "methods": ["completion/*"],
        "when": {"all": [{"arg": "argument.name", "equals": "token"}, {"arg": "ref.type", "equals": "ref/prompt"}]},
    },
    {
        "id": "no-keys-sampled",
        "action": "deny",
        "methods": ["response"],
        "when": {"arg": "result.content.text", "contains": "BEGIN PRIVATE KEY"},
    },
]
FILE = {"version": 1, "default": "allow", "rules": RULES}
POLICY = CompiledPolicy(PolicyFile.model_validate(FILE).rules, default="allow")


def completion(name: str, kind: str = "ref/prompt") -> dict[str, Any]:
    return {"ref": {"type": kind, "name": "p"}, "argument": {"name": name, "value": "g"}}


def sampled(text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"role": "assistant", "content": {"type": "text", "text": text}}}
