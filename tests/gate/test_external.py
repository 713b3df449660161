"""External rules in the gate: asked before anything is forwarded, and the strictest word counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.core.external import Ask, Asked, ExternalAnswer
from proxy.core.identity import Identity
from proxy.core.model import Answer, Forward, Principal
from proxy.gate.gate import Gate
from proxy.policy.load import load_policy
from proxy.wire.jsonrpc import serialise
from tests.support.gate_fixture import CONTEXT, World, call

EXTERNAL = "{id: ask, action: external, service: opa}"


class Service:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        self.asked: list[Asked] = []
        self.silent = False

    async def ask(self, asks: Sequence[Ask], asked: Asked) -> Mapping[Ask, ExternalAnswer]:
        self.asked.append(asked)
        return {} if self.silent else {ask: ExternalAnswer(self.reason, "said so") for ask in asks}


def gate(tmp_path: Path, service: Service | None, *rules: str, default: str = "deny") -> tuple[Gate, World]:
    file, world = tmp_path / "policy.yaml", World()
    file.write_text(f"version: 1\ndefault: {default}\nrules:\n" + "".join(f"  - {rule}\n" for rule in rules))
    policy = load_policy(file)
    return Gate(policy=lambda: policy, redactor=world, sink=world, services=service), world  # type: ignore[arg-type]


async def outcome(made: tuple[Gate, World], message: Any = None) -> str:
    verdict = await made[0].requests.inspect(serialise(message or call()), CONTEXT)
    if isinstance(verdict, Forward):
        return "allow"
    assert isinstance(verdict, Answer)
    return str(made[1].events[-1].reason)


async def test_a_yes_allows_what_nothing_else_does_and_is_recorded(tmp_path: Path) -> None:
    made = gate(tmp_path, Service(), EXTERNAL)
    assert await outcome(made) == "allow"
    event = made[1].events[-1]
    assert (event.decision, event.rule) == ("allow", "ask")
    assert event.detail["external"][0]["answer"] == "allow"


@pytest.mark.parametrize("reason", ["external_denied", "external_timeout", "external_unavailable", "external_answer"])
async def test_anything_but_a_yes_refuses_with_its_reason(tmp_path: Path, reason: str) -> None:
    made = gate(tmp_path, Service(reason), EXTERNAL, default="allow")
    assert await outcome(made) == reason
    assert made[1].events[-1].rule == "ask"


async def test_without_services_or_without_an_answer_it_is_refused(tmp_path: Path) -> None:
    assert await outcome(gate(tmp_path, None, EXTERNAL, default="allow")) == "external_unavailable"
    service = Service()
    service.silent = True
    assert await outcome(gate(tmp_path, service, EXTERNAL, default="allow")) == "external_unavailable"


async def test_a_service_that_raises_refuses(tmp_path: Path) -> None:
    service = Service()
    service.ask = None  # type: ignore[assignment,method-assign]
    assert await outcome(gate(tmp_path, service, EXTERNAL, default="allow")) == "internal_error"


async def test_the_strictest_word_counts_and_nobody_is_asked_for_what_is_denied(tmp_path: Path) -> None:
    service = Service()
    assert await outcome(gate(tmp_path, service, EXTERNAL, "{id: no, action: deny}")) == "policy_denied"
    assert service.asked == []
    allow = "{id: yes, action: allow}"
    assert await outcome(gate(tmp_path, Service("external_denied"), EXTERNAL, allow)) == "external_denied"
    other = "{id: two, action: external, service: cedar}"
    assert await outcome(gate(tmp_path, Service(), EXTERNAL, other)) == "allow"


async def test_calls_that_the_rule_is_not_about_are_not_asked_about(tmp_path: Path) -> None:
    service = Service("external_denied")
    rule = "{id: ask, action: external, service: opa, tools: [other]}"
    assert await outcome(gate(tmp_path, service, rule, default="allow")) == "allow"
    rule = "{id: ask, action: external, service: opa, when: {arg: path, equals: /y}}"
    assert await outcome(gate(tmp_path, service, rule, default="allow")) == "allow"
    assert service.asked == []


async def test_shadow_mode_asks_and_only_records(tmp_path: Path) -> None:
    rule = "{id: ask, action: external, service: opa, mode: shadow}"
    service = Service("external_denied")
    made = gate(tmp_path, service, rule, default="allow")
    assert await outcome(made) == "allow"
    assert made[1].events[-1].shadow_rules == ("ask",)
    made = gate(tmp_path, Service(), rule, default="allow")
    assert await outcome(made) == "allow"
    assert made[1].events[-1].shadow_rules == ()
    assert await outcome(gate(tmp_path, service, rule)) == "default_deny"


async def test_arguments_are_masked_unless_the_rule_says_otherwise(tmp_path: Path) -> None:
    service = Service()
    await outcome(gate(tmp_path, service, EXTERNAL), call(arguments={"key": "secret"}))
    assert service.asked[0].masked == {"key": "***"}
    await outcome(gate(tmp_path, service, "{id: ask, action: external, service: opa, arguments: raw}"))
    assert service.asked[1].masked is None


async def test_a_condition_that_cannot_be_judged_refuses_before_anybody_is_asked(tmp_path: Path) -> None:
    service = Service()
    rule = "{id: ask, action: external, service: opa, when: {arg: path, path_under: /x}}"
    assert await outcome(gate(tmp_path, service, rule, default="allow"), call(arguments={"path": 7})) == "wrong_type"
    assert service.asked == []


async def test_a_token_that_has_expired_meanwhile_is_refused(tmp_path: Path) -> None:
    made, world = gate(tmp_path, None, "{id: yes, action: allow}")
    for expires, forwarded in ((1e12, True), (0.0, False)):
        who = Principal("okta:bot", authenticated=True, identity=Identity("okta", "i", "bot", "k", {}, (), expires))
        context = replace(CONTEXT, principal=who, session=None)
        verdict = await made.requests.inspect(serialise(call()), context)
        assert isinstance(verdict, Forward) is forwarded
    assert world.events[-1].reason == "token_expired"
