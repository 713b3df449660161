"""A gate among fakes, for its tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.core.model import (
    Answer,
    AuditEvent,
    Call,
    Context,
    Decision,
    Finding,
    Forward,
    Json,
    Outcome,
    Principal,
    Redaction,
    Verdict,
)
from proxy.gate.gate import Gate
from proxy.wire.jsonrpc import serialise

CONTEXT = Context(Principal("bot", authenticated=True), "mcp.example.com", revision="2025-06-18", session="s1")
ALLOW = Decision(Outcome.ALLOW, "allowed", rule="yes", message="All fine", policy_version="v1")
DENY = Decision(Outcome.DENY, "policy_denied", rule="no-danger", message="Not that tool", policy_version="v1")
MASK = Redaction("scrub", ("secrets",), frozenset({"arguments", "result"}))
BOOM = RuntimeError("boom")


def call(tool: str = "t", arguments: Any = None, request_id: Any = 7, **params: Any) -> dict[str, Any]:
    arguments = {"path": "/x"} if arguments is None else arguments
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, **params},
    }


def masked(value: Any) -> Any:
    """Mask the word "secret" wherever it stands alone."""
    if isinstance(value, dict):
        return {key: masked(child) for key, child in value.items()}
    if isinstance(value, list):
        return [masked(child) for child in value]
    return "***" if value == "secret" else value


@dataclass
class World:
    """A gate among fakes that note what happens, in order."""

    decision: Any = ALLOW
    order: list[str] = field(default_factory=list)
    events: list[AuditEvent] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    fail: dict[str, Exception] = field(default_factory=dict)
    mask_as: Callable[[Any], Any] = masked
    now: float = 1000.0
    version: str = "v1"
    incoming: Any = ()

    def __post_init__(self) -> None:
        self.gate = Gate(policy=lambda: self, redactor=self, sink=self, clock=lambda: self.now)

    def _step(self, name: str) -> None:
        self.order.append(name)
        if name in self.fail:
            raise self.fail[name]

    def decide(self, subject: Call) -> Decision:
        self._step("decide")
        self.calls.append(subject)
        decided: Decision = self.decision
        return decided

    def unmatched(self, server: str) -> Decision:
        self._step("unmatched")
        return replace(ALLOW, redactions=(MASK,))

    def mask(self, value: Json, detectors: Any, suppressions: Any = ()) -> tuple[Json, tuple[Finding, ...]]:
        self._step("mask")
        new = self.mask_as(value)
        return new, () if new == value else (Finding("secrets.test", "$", "f"),)

    def is_clean(self, *_: Any) -> bool:
        return False

    async def record(self, event: AuditEvent) -> None:
        self._step("record")
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self._step("record_later")
        self.events.append(event)

    async def inspect(self, value: Any, headers: Any = (), context: Context = CONTEXT) -> Verdict:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        verdict = await self.gate.requests.inspect(body, context, headers)
        if isinstance(verdict, Forward):  # what goes on is what was decided, however it was spelt
            assert await self.gate.requests.encode(verdict) == serialise(verdict.message.value)
        self.order.append(type(verdict).__name__)
        return verdict

    async def forward(self, value: Any, **more: Any) -> Forward:
        verdict = await self.inspect(value, **more)
        assert isinstance(verdict, Forward)
        return verdict


def only_reply(verdict: Verdict, status: int = 200) -> Any:
    assert isinstance(verdict, Answer)
    assert verdict.status == status
    (reply,) = verdict.replies
    return reply


def denial_of(reply: Any) -> Any:
    return reply["error"]["data"] if "error" in reply else reply["result"]["_meta"]["mcp-interlock/denial"]
