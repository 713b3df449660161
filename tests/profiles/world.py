"""Runs cases through the decision path of one profile, in this process: the real policy, gate, guard and redactor."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proxy.core.model import AuditEvent, Context, EgressRequest, Forward, Pass, Principal, Verdict
from proxy.egress.guard import EgressGuard
from proxy.gate.a2a_rest import router_for
from proxy.gate.gate import Gate, OpenFlows
from proxy.gate.limits import CallLimits
from proxy.gate.outbound_scan import remember
from proxy.gate.router import ResponseRouter
from proxy.gate.tool_catalog import ToolCatalog
from proxy.policy.load import load_policy
from proxy.redact import Masker, builtin
from proxy.store.flow_store import FlowMarks
from proxy.store.limit_store_sqlite import SqliteLimits
from proxy.store.pin_files import PinFiles
from proxy.store.sqlite import SqliteDatabase
from proxy.system.package_data import profile_file
from proxy.wire.a2a import is_rest
from proxy.wire.client_stream import ClientStream
from proxy.wire.mcp import read_head
from tests.profiles.cases_file import Case

PUBLIC = "93.184.216.34"
SERVER = "tools.example.com"
PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
KEY = b"k" * 32


class Sink:
    """Keeps the events of a case."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)


async def look_up(host: str, port: int) -> tuple[str, ...]:
    """Every name leads to a public address: no case depends on what DNS says today."""
    return (PUBLIC,)


class ProfileRunner:
    """One profile. Each case is an agent's day of its own: what one teaches the proxy, the next does not know."""

    def __init__(self, profile: str, state_dir: Path) -> None:
        self.policy = load_policy(profile_file(profile), builtin())
        self.masker = Masker(KEY)
        self.state_dir = state_dir
        state_dir.mkdir(parents=True, exist_ok=True)
        # One store for all, as a proxy has; each case is an agent of its own.
        self.marks = FlowMarks(SqliteDatabase(state_dir / "store.db", in_thread=False))
        self.limits = SqliteLimits(state_dir / "limits.db")

    async def contained(self, case: Case) -> bool:
        """Return whether any step of the case was refused, or changed before it arrived."""
        return await CaseRun(self, case.id).run(case)


class CaseRun:
    """One case: a gate, a guard and what they remember from step to step."""

    def __init__(self, runner: ProfileRunner, agent: str) -> None:
        self.sink = Sink()
        self.agent, policy = agent, runner.policy
        self._guard = EgressGuard(lambda: policy, list, look_up)
        self._catalog = ToolCatalog(policy=lambda: policy, pins=PinFiles(runner.state_dir / agent))
        self.gate = Gate(
            policy=lambda: policy,
            redactor=runner.masker,
            sink=self.sink,
            catalog=self._catalog,
            limits=CallLimits(runner.limits),
            flows=OpenFlows(lambda: policy, runner.marks, KEY),
        )
        self._next_id = 0

    async def run(self, case: Case) -> bool:
        # All steps are taken, as an agent would that goes on after a refusal.
        return any([await self.step(kind, value) for kind, value in case.steps])

    async def step(self, kind: str, value: dict[str, Any]) -> bool:
        """Take one step, or as often as its `times` says; return whether it was contained."""
        return any([await getattr(self, f"do_{kind}")(value) for _ in range(value.get("times", 1))])

    async def context(self, url: str, method: str = "GET", **more: Any) -> Context:
        """Return what the gate is told of a request to `url`, judged by the guard."""
        parts = urlsplit(url)
        _, _, netloc = parts.netloc.rpartition("@")
        host, port = _split(netloc, PORTS[parts.scheme])
        request = EgressRequest(host, port, method, (), self.agent)
        judgement = await self._guard.judge(request)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        server = f"{host}:{port}" if port not in PORTS.values() else host
        return Context(Principal(self.agent), server, egress=judgement.decision, target=target, **more)

    async def do_http(self, value: dict[str, Any]) -> bool:
        """Send a plain request; `response` is what comes back."""
        method = value.get("method", "POST" if "body" in value or "base64" in value else "GET")
        context = await self.context(value["url"], method)
        headers = _headers(value)
        verdict = await self.gate.requests.inspect(_body(value), context, read_head(headers))
        if isinstance(verdict, Forward):
            return await self._forwarded(verdict, value)
        if not isinstance(verdict, Pass):
            return True
        return await self.plain_response(context, value["url"], value["response"]) if "response" in value else False

    async def _forwarded(self, verdict: Forward, value: dict[str, Any]) -> bool:
        """Take the answer to a message that is decided on like MCP's: another agent's, say."""
        sent = verdict.message.value.get("params") if is_rest(verdict.message) else verdict.message.value
        if sent != json.loads(_body(value)):
            return True
        if "response" not in value:
            return False
        answer = value["response"]["body"]
        router = router_for(self.gate.responses, verdict.in_flight.context, verdict.in_flight, KEY)
        passed = await router.store_marks(router.rewrite_whole(json.dumps(answer).encode()))
        return passed is not None and not _same(passed, answer)

    async def plain_response(self, context: Context, url: str, response: dict[str, Any]) -> bool:
        """Take what a plain server answers: `status`, `headers`, `type` and `body`."""
        location = {name.lower(): text for name, text in response.get("headers", {}).items()}.get("location")
        if response["status"] // 100 == 3 and location is not None:
            return self.gate.plain_requests.refuse_redirect(context, location) is not None
        body = response["body"]
        await self._label_page(context, body)
        watch = self.gate.pages.watch(context, [response.get("type", "text/html")], [])
        if watch is None:
            return False
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        return watch.take(data) is not None

    async def _label_page(self, context: Context, body: Any) -> None:
        flows = self.gate.flows
        if flows is not None and flows.labels_pages(context):
            await flows.store(flows.page_marks(context, body, "page"))

    async def do_websocket(self, value: dict[str, Any]) -> bool:
        """Send the frames of a WebSocket one after the other; `more: true` says that the message goes on."""
        context = await self.context(value["url"], transport="websocket", session="socket")
        opening = await self.gate.requests.inspect(b"", context, read_head(_headers(value)))
        stream, refused, pending = ClientStream(), not isinstance(opening, Pass), b""
        for frame in value["frames"]:
            shaped = frame if isinstance(frame, dict) else {"text": frame}
            pending += base64.b64decode(shaped["base64"]) if "base64" in shaped else shaped["text"].encode()
            if not shaped.get("more"):
                refused = not await self._message(pending, context, stream) or refused
                pending = b""
        return refused

    async def _message(self, body: bytes, context: Context, stream: ClientStream) -> bool:
        verdict = await self.gate.requests.inspect(body, context, stream=stream)
        if isinstance(verdict, Pass):
            remember(stream, body)
            stream.passed(body)
        return isinstance(verdict, Pass)

    async def do_mcp(self, value: dict[str, Any]) -> bool:
        """Call a tool, or any method with its params; `result` is what the server answers."""
        params = value.get("params") or {"name": value.get("tool"), "arguments": value.get("arguments", {})}
        return await self.exchange(value.get("method", "tools/call"), params, value.get("result"), value)

    async def do_lists(self, value: dict[str, Any]) -> bool:
        """List a server's tools, or what `method` lists, and get `result`: contained where it is not shown as it is."""
        return await self.exchange(value.get("method", "tools/list"), {}, value["result"], value)

    async def exchange(self, method: str, params: Any, result: Any, value: dict[str, Any]) -> bool:
        context = await self.context(f"https://{value.get('server', SERVER)}/mcp", "POST", session="s")
        self._next_id += 1
        sent = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        body = json.dumps(sent).encode()
        verdict = await self.gate.requests.inspect(body, context, read_head([("content-type", "application/json")]))
        if not isinstance(verdict, Forward) or _changed(verdict, sent):
            return True
        answer = {"jsonrpc": "2.0", "id": self._next_id, "result": {"content": []} if result is None else result}
        router = ResponseRouter(self.gate.responses, context, verdict.in_flight, KEY)
        passed = await router.store_marks(router.rewrite_whole(json.dumps(answer).encode()))
        return result is not None and passed is not None and not _same(passed, answer)


def _changed(verdict: Verdict, sent: Any) -> bool:
    assert isinstance(verdict, Forward)
    return bool(verdict.message.value != sent)


def _same(passed: list[bytes], answer: Any) -> bool:
    return len(passed) == 1 and json.loads(passed[0]) == answer


def _split(netloc: str, port: int) -> tuple[str, int]:
    host, colon, number = netloc.rpartition(":")
    if colon and number.isdigit() and (not host.startswith("[") or host.endswith("]")):
        return host, int(number)
    return netloc, port


def _headers(value: dict[str, Any]) -> list[tuple[str, str]]:
    headers = list(value.get("headers", {}).items())
    if "type" in value:
        headers.append(("content-type", value["type"]))
    login, at, _ = urlsplit(value["url"]).netloc.rpartition("@")
    if at:  # as every client sends it
        headers.append(("authorization", "Basic " + base64.b64encode(login.encode()).decode()))
    return headers


def _body(value: dict[str, Any]) -> bytes:
    if "base64" in value:
        return base64.b64decode(value["base64"])
    body = value.get("body", "")
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
