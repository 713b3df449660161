"""What tests across workers and across replicas have in common: servers, sessions, and what a client sees of calls."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2

from tests.daemon.lines_to import Line, events, reason_of, text_of
from tests.faults.load import wait_until
from tests.support.harness import Interlock, ServerHandle

POLICY = r"""
version: 1
default: allow
detectors:
  - {id: custom.nap, description: What the slow tool says, regex: 'slept [0-9]+ ms'}
rules:
  - {id: no-danger, description: Never, action: deny, tools: [danger]}
  - {id: scrub, description: The slow tool's results, action: redact, tools: [slow], on: [result], detectors: [custom]}
  - {id: careful, description: In two steps, action: two_phase, tools: [structured]}
"""
VERSION = "2025-11-25"
PROOF = {"prompt": "count", "candidate_outputs": ["it is 3", "it is 3"]}


def session(interlock: Interlock, server: ServerHandle) -> dict[str, str]:
    """Open a session by way of its worker 1; return its headers."""
    line = Line(interlock, 1, f"{server.url}/mcp")
    params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    response = line.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    headers = {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": VERSION}
    response.read()
    line.headers |= headers
    line.post({"jsonrpc": "2.0", "method": "notifications/initialized"}).read()
    line.close()
    return headers


def ended(interlock: Interlock, call_id: str) -> dict[str, Any]:
    """Return the event that says how a call ended, once it is there; there is one."""
    wait_until(lambda: [e for e in interlock.recorded() if e["kind"] == "completed" and e["call_id"] == call_id])
    (event,) = [e for e in interlock.recorded() if e["kind"] == "completed" and e["call_id"] == call_id]
    return event


def handshake(post: Line, path: str, stream: Iterator[dict[str, str]]) -> None:
    params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    assert post.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, path).read() == b"Accepted"
    assert json.loads(next(stream)["data"])["id"] == 0
    post.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path).read()


def resume(line: Line, last: str) -> Any:
    """Go on after an event, again where the server ends the stream before it has more, as clients do."""
    for _ in range(200):
        for event in line.stream(**{"Last-Event-ID": last}):
            if event.get("data"):
                return json.loads(event["data"])
        time.sleep(0.2)
    raise AssertionError("the answer is not replayed")


def through(url: str) -> Any:
    return lambda **options: httpx2.AsyncClient(proxy=url, trust_env=False, **options)


class LegacyClient:
    """A client of the legacy transport: it listens at one place, and posts at others in turn."""

    def __init__(self, server: ServerHandle, reader: tuple[Interlock, int], *writers: tuple[Interlock, int]) -> None:
        self._reader = Line(*reader, server.url)
        self._writers: Sequence[Line] = [Line(*each, server.url, {"Accept": "*/*"}) for each in writers]
        self.stream = self._reader.stream("/sse")
        self.path = next(self.stream)["data"]
        handshake(self._writers[0], self.path, self.stream)

    def post(self, number: int, method: str, params: dict[str, Any]) -> None:
        value = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        response = self._writers[number % len(self._writers)].post(value, self.path)
        assert (response.status, response.read()) == (202, b"Accepted")

    def ask(self, number: int, method: str, params: dict[str, Any]) -> Any:
        self.post(number, method, params)
        return next(self.answers(number))

    def call(self, number: int, tool: str, **arguments: Any) -> Any:
        return self.ask(number, "tools/call", {"name": tool, "arguments": arguments})

    def answers(self, number: int) -> Iterator[Any]:
        """Yield the answers to one request."""
        said = (json.loads(event["data"]) for event in self.stream if event.get("data"))
        return (answer for answer in said if answer.get("id") == number)

    def hang_up(self) -> None:
        """End the stream; posts go on."""
        self._reader.close()
        self.stream.close()  # type: ignore[attr-defined]

    def close(self) -> None:
        for line in (self._reader, *self._writers):
            line.close()


def check_calls(client: LegacyClient) -> str:
    """Check that every kind of call is answered as its rule says; return the id of a proposal that was committed."""
    assert "slept 30 ms" not in text_of(client.call(1, "slow", ms=30))
    said = text_of(client.call(2, "echo", text="slept 5 ms"))
    assert said == "slept 5 ms", "masked by the rules of its call, and no others"
    assert reason_of(client.call(3, "danger")) == "policy_denied"
    given = client.call(4, "structured_propose", n=3, _interlock=PROOF)["result"]["structuredContent"]
    ticket = {"proposal_id": given["proposal_id"], "commit_token": given["commit_token"]}
    assert client.call(5, "structured_commit", n=3, **ticket)["result"]["structuredContent"] == {"n": 3}
    return str(given["proposal_id"])


def check_masked(done: dict[str, Any], began: dict[str, Any]) -> None:
    """Check the end of a call whose answer came by way of another writer's log."""
    assert (done["outcome"], done["redactions"][0]["detector"]) == ("done", "custom.nap")
    assert done["writer"] != began["writer"]


def check_id_and_resumption(first: Line, second: Line, server: ServerHandle) -> None:
    """Check that an id in use at one place is refused at the other, where its cut stream goes on."""
    meta = {"name": "slow", "arguments": {"ms": 60_000}, "_meta": {"progressToken": "p"}}
    response = first.post({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": meta})
    progress = next(event for event in events(response) if "progress" in event.get("data", ""))
    assert reason_of(second.call(5, "echo", text="x")) == "id_in_use"
    assert text_of(second.call(6, "echo", text="slept 1 ms")) == "slept 1 ms"
    first.close()
    response.close()
    server.wake()
    answer = resume(second, progress["id"])
    assert answer["id"] == 5
    assert "slept 60000" not in text_of(answer), "masked by the rules of its call"
    second.close()
