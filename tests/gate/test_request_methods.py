"""Rules over other methods than tools/call, at the gate: what is refused is not forwarded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.core.model import Answer, AuditEvent, Forward
from proxy.gate.gate import Gate
from proxy.redact import Masker
from tests.support.gate_fixture import CONTEXT, only_reply
from tests.support.method_rules import POLICY, completion, sampled


@dataclass
class World:
    """A gate with a real policy."""

    events: list[AuditEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate = Gate(policy=lambda: POLICY, redactor=Masker(b"k" * 32, engine="re2"), sink=self)

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def send(self, value: dict[str, Any]) -> Any:
        return await self.gate.requests.inspect(json.dumps(value).encode(), CONTEXT)

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        return await self.send({"jsonrpc": "2.0", "id": 3, "method": method, "params": params})


CASES = [
    ("resources/read", {"uri": "file:///secrets/a"}, {"uri": "file:///open/a"}, "no-secrets-read"),
    ("prompts/get", {"name": "admin"}, {"name": "user"}, "no-admin-prompt"),
    ("completion/complete", completion("token"), completion("city"), "no-guessing"),
]


@pytest.mark.parametrize(("method", "denied", "allowed", "rule"), CASES)
async def test_a_request_that_a_rule_denies_is_answered_and_recorded(
    method: str, denied: dict[str, Any], allowed: dict[str, Any], rule: str
) -> None:
    world = World()
    data = only_reply(await world.ask(method, denied))["error"]["data"]
    assert (data["reason"], data["rule"]) == ("policy_denied", rule)
    assert (world.events[-1].decision, world.events[-1].rule, world.events[-1].method) == ("deny", rule, method)
    assert isinstance(await world.ask(method, allowed), Forward)


async def test_an_answer_to_the_servers_own_question_is_held_back_where_a_rule_denies() -> None:
    world = World()
    assert await world.send(sampled("-----BEGIN PRIVATE KEY-----")) == Answer((), status=202)
    assert (world.events[-1].decision, world.events[-1].rule) == ("deny", "no-keys-sampled")
    assert isinstance(await world.send(sampled("hello")), Forward)
