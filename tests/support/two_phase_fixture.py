"""A gate with real rules, pins, masks, store and keys, and a clock that tests turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proxy.core.model import Answer, AuditEvent, Context, Forward, Principal, Verdict
from proxy.gate.gate import Gate, OpenFlows
from proxy.gate.limits import CallLimits
from proxy.gate.tool_catalog import ToolCatalog
from proxy.gate.two_phase import TwoPhase
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile
from proxy.redact import Masker
from proxy.store.flow_store import FlowMarks
from proxy.store.limit_store_sqlite import SqliteLimits
from proxy.store.open_store import open_store
from proxy.store.pin_files import PinFiles
from proxy.store.sqlite import SqliteDatabase
from proxy.twophase.tokens import KeyRing, SigningKey

CONTEXT = Context(Principal("bot", authenticated=True), "bank.example.com", revision="2025-06-18", session="s1")
PAY: dict[str, Any] = {"id": "pay", "action": "two_phase", "tools": ["transfer_funds"], "description": "Money"}
ARGUMENTS = {"amount": 100, "to": "bob"}
STABLE = {"candidate_outputs": ["moved 100 to bob", "moved 100 to bob"]}
UNSTABLE = {"candidate_outputs": ["moved 100 to bob", "declined: no such account 7"]}
RING = KeyRing(SigningKey("k1", b"k" * 32))


def replace_agent(context: Context, agent: str) -> Context:
    return replace(context, principal=Principal(agent, authenticated=True))


@dataclass
class World:
    """A gate that proposes and commits; `server` answers what is forwarded."""

    folder: Path
    rules: list[dict[str, Any]] = field(default_factory=lambda: [PAY])
    now: float = 1_000_000.0
    ring: KeyRing = RING
    events: list[AuditEvent] = field(default_factory=list)
    forwarded: list[dict[str, Any]] = field(default_factory=list)
    fail: Exception | None = None
    sampler: Any = None
    database_url: str | None = None
    console_url: str | None = None
    next_id: int = 0
    limits: list[dict[str, Any]] = field(default_factory=list)
    labels: list[dict[str, Any]] = field(default_factory=list)
    flows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.set_rules(self.rules)
        self.store = open_store(self.database_url, self.folder)
        self.catalog = ToolCatalog(policy=lambda: self.policy, pins=PinFiles(self.folder), clock=lambda: self.now)
        self.two_phase = TwoPhase(
            store=self.store,
            ring=lambda: self.ring,
            catalog=self.catalog,
            clock=lambda: self.now,
            sampler=self.sampler,
            console_url=self.console_url,
        )
        self.marks = FlowMarks(SqliteDatabase(self.folder / "marks.db", in_thread=False))
        self.gate = Gate(
            policy=lambda: self.policy,
            redactor=Masker(b"m" * 32, engine="re2"),
            sink=self,
            clock=lambda: self.now,
            catalog=self.catalog,
            two_phase=self.two_phase,
            limits=CallLimits(SqliteLimits(self.folder / "limits.db", lambda: self.now)),
            flows=OpenFlows(lambda: self.policy, self.marks, b"f" * 32),
        )

    def set_rules(self, rules: list[dict[str, Any]], default: str = "allow") -> None:
        parts = {"rules": rules, "limits": self.limits, "labels": self.labels, "flows": self.flows}
        content = PolicyFile.model_validate({"version": 1, **parts})
        given = {"limits": content.limits, "labels": content.labels, "flows": content.flows}
        self.policy = CompiledPolicy(content.rules, default=default, version="v1", **given)  # type: ignore[arg-type]

    async def record(self, event: AuditEvent) -> None:
        if self.fail is not None:
            raise self.fail
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)

    async def inspect(self, tool: str, arguments: Any, context: Context = CONTEXT, **params: Any) -> Verdict:
        self.next_id += 1
        body = {
            "jsonrpc": "2.0",
            "id": self.next_id,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, **params},
        }
        return await self.gate.requests.inspect(json.dumps(body).encode(), context, params.pop("headers", ()))

    async def propose(
        self, arguments: Any = None, extra: Any = STABLE, tool: str = "transfer_funds", **more: Any
    ) -> Any:
        """Propose; return the answer's structure."""
        given = {**(ARGUMENTS if arguments is None else arguments), **({"_interlock": extra} if extra else {})}
        return structure(await self.inspect(f"{tool}_propose", given, **more))

    async def commit(
        self, proposed: Any, arguments: Any = None, tool: str = "transfer_funds", **more: Any
    ) -> Forward | str:
        """Commit; return what is forwarded, or the reason why nothing is."""
        given = {**(ARGUMENTS if arguments is None else arguments)}
        given |= {name: proposed[name] for name in ("proposal_id", "commit_token") if name in proposed}
        verdict = await self.inspect(f"{tool}_commit", given, **more)
        if isinstance(verdict, Forward):
            encoded = json.loads(await self.gate.requests.encode(verdict))
            assert encoded == verdict.message.value
            self.forwarded.append(encoded["params"])
            return verdict
        return reason(verdict)

    async def answer(self, forward: Forward, **result: Any) -> None:
        """Let the server answer what was forwarded."""
        value = {"jsonrpc": "2.0", "id": forward.message.id, "result": {"content": [], **result}}
        self.gate.responses.observe(forward.in_flight, value, json.dumps(value).encode())
        await self.two_phase.settle()

    async def close(self) -> None:
        self.gate.close()
        await self.gate.limits.close()
        await self.two_phase.close()

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


type Make = Callable[..., World]


def reply(verdict: Verdict) -> Any:
    assert isinstance(verdict, Answer), verdict
    (only,) = verdict.replies
    return only


def structure(verdict: Verdict) -> Any:
    """Return a proposal's answer, which stands twice in it."""
    answered = reply(verdict)["result"]
    if answered["isError"]:
        return reason(verdict)
    assert json.loads(answered["content"][0]["text"]) == answered["structuredContent"]
    return answered["structuredContent"]


def reason(verdict: Verdict) -> str:
    """Return why a call was refused; its text names the code too."""
    result = reply(verdict)["result"]
    code: str = result["_meta"]["mcp-interlock/denial"]["reason"]
    assert f"({code})" in result["content"][0]["text"]
    return code


def other(**changes: Any) -> Context:
    return replace(CONTEXT, **changes)
