"""A gate with a real policy, a real store of marks, and no transport: for tests of flows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.core.model import Answer, AuditEvent, Context, Forward, Pass, Principal, Reject, Verdict
from proxy.flows.fingerprint import KEY_BYTES
from proxy.gate.gate import Gate, OpenFlows
from proxy.gate.router import ResponseRouter
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile
from proxy.policy.yaml_file import parse_yaml, plain_values
from proxy.redact.mask import Masker
from proxy.store.database import Database
from proxy.store.flow_store import FlowMarks
from proxy.store.flow_windows import WindowFile
from proxy.store.sqlite import SqliteDatabase

KEY = bytes(range(KEY_BYTES))
WIKI = """
version: 1
default: allow
labels:
  - {id: wiki-is-private, servers: [wiki], gives: private}
flows:
  - id: wiki-not-to-the-web
    description: What the wiki tool read stays in the house
    from: private
    to: {tools: [fetch, post], hosts: ["*"]}
    except: {hosts: [intranet.example]}
    by: content
    within: 1h
"""


def compiled(text: str) -> CompiledPolicy:
    content = PolicyFile.model_validate(plain_values(parse_yaml(text.encode())))
    return CompiledPolicy(
        content.rules, default=content.default or "deny", labels=content.labels, flows=content.flows, version="v1"
    )


@dataclass
class Recorder:
    """Keeps events in memory."""

    events: list[AuditEvent] = field(default_factory=list)

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)


class FlowWorld:
    """One worker. Several may share a store."""

    def __init__(self, policy: str, database: Database, key: bytes = KEY, now: float = 1_763_000_000.0) -> None:
        self.now = now
        self.policy = compiled(policy)
        self.sink = Recorder()
        self.marks = FlowMarks(database, *_beside(database))
        self.gate = Gate(
            policy=lambda: self.policy,
            redactor=Masker(KEY),
            sink=self.sink,
            clock=lambda: self.now,
            flows=OpenFlows(lambda: self.policy, self.marks, key),
        )
        self._ids = 0

    def context(self, server: str, **more: Any) -> Context:
        return Context(Principal(more.pop("agent", "bot")), server, **more)

    async def ask(self, server: str, tool: str, arguments: Any, **more: Any) -> Verdict:
        """Send a tool call to the gate."""
        self._ids += 1
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if "trace" in more:
            params["_meta"] = {"traceparent": f"00-{more.pop('trace')}-{'0' * 15}1-01"}
        message = {"jsonrpc": "2.0", "id": self._ids, "method": "tools/call", "params": params}
        return await self.gate.requests.inspect(json.dumps(message).encode(), self.context(server, **more))

    async def answer(self, verdict: Verdict, result: Any, **more: Any) -> Any:
        """Let the server answer a call with a text or a result; return what the client is given."""
        assert isinstance(verdict, Forward), verdict
        shown = result if isinstance(result, dict) else {"content": [{"type": "text", "text": result}], **more}
        body = json.dumps({"jsonrpc": "2.0", "id": verdict.message.id, "result": shown}).encode()
        router = ResponseRouter(self.gate.responses, verdict.in_flight.context, verdict.in_flight)
        payloads = await router.store_marks(router.rewrite_whole(body))
        return json.loads(payloads[0] if payloads else body)

    async def read(self, server: str, tool: str, result: Any, arguments: Any = None, **more: Any) -> str:
        """Call a tool and take its result; return the call's audit id."""
        verdict = await self.ask(server, tool, arguments or {}, **more)
        given = await self.answer(verdict, result)
        assert "mcp-interlock/denial" not in json.dumps(given), given
        assert isinstance(verdict, Forward)
        return verdict.in_flight.call_id

    async def send(self, server: str, tool: str, arguments: Any, **more: Any) -> dict[str, Any] | None:
        """Call a tool; return the denial, None where it passes."""
        verdict = await self.ask(server, tool, arguments, **more)
        if isinstance(verdict, Forward):
            await self.answer(verdict, "ok")
            return None
        assert isinstance(verdict, Answer), verdict
        denial: dict[str, Any] = verdict.replies[0]["result"]["_meta"]["mcp-interlock/denial"]
        return denial

    async def request(
        self, host: str, target: str = "/", body: bytes = b"", headers: Any = (), **more: Any
    ) -> dict[str, Any] | None:
        """Send a plain request; return the denial, None where it passes."""
        context = self.context(host, target=target, **more)
        verdict = await self.gate.requests.inspect(body, context, headers)
        if isinstance(verdict, Pass):
            return None
        assert isinstance(verdict, Reject), verdict
        return {**verdict.denial.data(), "text": verdict.denial.text}


def _beside(database: Database) -> tuple[Database, WindowFile] | tuple[()]:
    """Return what a proxy reads marks with, and the file of windows, where the store is a file."""
    if not isinstance(database, SqliteDatabase):
        return ()
    return SqliteDatabase(database.path, in_thread=False), WindowFile(database.path.with_name("windows.db"))


def open_world(folder: Path, policy: str = WIKI, **more: Any) -> FlowWorld:
    """Return a worker with a store of its own in a folder."""
    return FlowWorld(policy, SqliteDatabase(folder / "interlock.db", in_thread=False), **more)
