"""Credentials are at hand before a request is recorded as allowed, and it is recorded before it may be sent."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from proxy.core.model import Answer, AuditEvent, Context, Forward, Pass, Principal, Reject
from proxy.core.vault import Credential, Place, Secret
from proxy.errors import AuditUnavailableError
from proxy.gate.gate import Gate
from tests.support.gate_fixture import DENY, MASK, World, call
from tests.support.vault_fixture import FakeVault

HELD = "ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HERE = Context(Principal("bot"), "api.example.com", session="s", target="/mcp", way="sealed")
KEY = Credential(name="key", placeholder=HELD, hosts=("api.example.com",), places=(Place.HEADER, Place.BODY))
HEADERS = [("Authorization", f"Bearer {HELD}")]
MESSAGE = json.dumps(call(arguments={"k": HELD})).encode()


@dataclass
class Notes(FakeVault):
    order: list[str] = field(default_factory=list)

    async def value(self, name: str) -> Secret:
        self.order.append("value")
        return await super().value(name)


class Scene(World):
    """A gate with a vault, among fakes."""

    def __post_init__(self) -> None:
        self.vault = Notes((KEY,), values={"key": b"the-real-value"}, order=self.order)
        self.gate = Gate(
            policy=lambda: self,
            redactor=self,
            sink=self,
            clock=lambda: self.now,
            vault=self.vault,
            before_credentials=lambda: self.order.append("guard"),
        )

    async def ask(self, body: bytes, headers: Any = (), context: Context = HERE) -> Any:
        return await self.gate.requests.inspect(body, context, headers)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def said(events: list[AuditEvent]) -> list[tuple[str, str | None, str | None]]:
    return [(event.kind, event.decision, event.reason) for event in events]


async def test_a_call_is_decided_then_fetched_for_then_recorded(scene: Scene) -> None:
    verdict = await scene.ask(MESSAGE, HEADERS)
    assert isinstance(verdict, Forward)
    assert [step for step in scene.order if step != "mask"] == ["decide", "guard", "value", "record"]
    assert verdict.filling is not None
    assert verdict.filling.body is not None
    assert json.loads(verdict.filling.body.reveal())["params"]["arguments"] == {"k": "the-real-value"}
    assert verdict.message.params["arguments"] == {"k": HELD}
    assert scene.calls[0].arguments == {"k": HELD}
    (event,) = scene.events
    assert event.arguments == {"k": HELD}
    assert event.detail["credentials"] == ["key"]
    assert "the-real-value" not in repr((verdict, scene.events))


async def test_what_is_denied_anyway_is_fetched_for_never(scene: Scene) -> None:
    scene.decision = DENY
    assert isinstance(await scene.ask(MESSAGE, HEADERS), Answer)
    assert "value" not in scene.order


async def test_without_a_value_a_call_is_refused_and_recorded_so(scene: Scene) -> None:
    scene.vault.values = {}
    verdict = await scene.ask(MESSAGE)
    assert isinstance(verdict, Answer)
    assert "credential_unavailable" in json.dumps(verdict.replies)
    assert said(scene.events) == [("decided", "deny", "credential_unavailable")]


async def test_where_it_cannot_be_recorded_nothing_is_sent(scene: Scene) -> None:
    scene.fail["record"] = AuditUnavailableError("full")
    assert isinstance(await scene.ask(MESSAGE), Answer)
    plain = replace(HERE, session=None)
    verdict = await scene.ask(b"plain", HEADERS, plain)
    assert isinstance(verdict, Reject)
    assert verdict.denial.reason == "audit_unavailable"


async def test_a_plain_request_is_recorded_before_it_may_pass(scene: Scene) -> None:
    plain = replace(HERE, session=None)
    verdict = await scene.ask(b"plain", HEADERS, plain)
    assert isinstance(verdict, Pass)
    assert verdict.filling is not None
    assert scene.order == ["guard", "value", "record"]
    assert said(scene.events) == [("credential_used", "allow", None)]
    assert isinstance(await scene.ask(b"plain", (), plain), Pass)
    assert len(scene.events) == 1


async def test_a_plain_request_is_refused_with_what_to_do(scene: Scene) -> None:
    verdict = await scene.ask(b"plain", HEADERS, replace(HERE, session=None, server="evil.test"))
    assert isinstance(verdict, Reject)
    assert (verdict.status, verdict.denial.reason) == (403, "credential_not_bound")
    assert "api.example.com" in verdict.denial.text
    assert said(scene.events) == [("request_refused", "deny", "credential_not_bound")]


async def test_the_responses_and_notifications_of_a_session_have_their_credentials_too(scene: Scene) -> None:
    for message in (
        {"jsonrpc": "2.0", "id": 5, "result": {"note": HELD}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 6, "method": "initialize", "params": {}},
    ):
        verdict = await scene.ask(json.dumps(message).encode(), HEADERS)
        assert isinstance(verdict, Forward)
        assert verdict.filling is not None
        assert verdict.filling.head.keys() == {HELD}
        assert verdict.filling.body is None


async def test_what_is_masked_in_arguments_is_masked_before_a_value_is_put_in(scene: Scene) -> None:
    scene.decision = replace(scene.decision, redactions=(MASK,))
    verdict = await scene.ask(json.dumps(call(arguments={"k": HELD, "l": "secret"})).encode())
    assert isinstance(verdict, Forward)
    assert verdict.filling is not None
    assert verdict.filling.body is not None
    sent = json.loads(verdict.filling.body.reveal())["params"]["arguments"]
    assert sent == {"k": "the-real-value", "l": "***"}


async def test_where_looking_fails_nothing_passes(scene: Scene) -> None:
    def broken() -> Any:
        raise RuntimeError("broken")

    scene.vault.credentials = broken  # type: ignore[method-assign]
    verdict = await scene.ask(MESSAGE)
    assert isinstance(verdict, Answer)
    assert "internal_error" in json.dumps(verdict.replies)
    assert isinstance(await scene.ask(b"plain", HEADERS, replace(HERE, session=None)), Reject)
