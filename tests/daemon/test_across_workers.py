"""Whatever worker a request meets, everything works: sessions, streams, refusals, tools, phases, announcements."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from tests.daemon.lines_to import Line, events, reason_of, text_of
from tests.daemon.reload import replace_policy, wait_for
from tests.faults.load import wait_until
from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.timeouts import PATIENCE

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


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("two"), policy=POLICY, flags=["--workers", "2"]) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def modern(folder: Path) -> Iterator[ServerHandle]:
    with start_python_server("python_modern", folder / "modern", flags=["--resumable"]) as server:
        yield server


@pytest.fixture(scope="module")
def legacy(folder: Path) -> Iterator[ServerHandle]:
    with start_python_server("python_sse", folder / "legacy") as server:
        yield server


def session(interlock: Interlock, server: ServerHandle) -> dict[str, str]:
    """Open a session by way of worker 1; return its headers."""
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


def decided(interlock: Interlock, **fields: Any) -> dict[str, Any]:
    wanted = {"kind": "decided", **fields}
    found = [e for e in interlock.recorded() if wanted.items() <= e.items()]
    return found[-1]


def handshake(post: Line, path: str, stream: Iterator[dict[str, str]]) -> None:
    params = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    assert post.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, path).read() == b"Accepted"
    assert json.loads(next(stream)["data"])["id"] == 0
    post.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, path).read()


def test_an_endpoint_that_spoke_mcp_to_one_worker_takes_nothing_else_from_another(
    two: Interlock, modern: ServerHandle
) -> None:
    session(two, modern)  # worker 1 has seen the server answer
    for worker in (1, 2):
        line = Line(two, worker, f"{modern.url}/mcp")
        response = line.post({"not": "a message"})
        assert response.status == 400
        assert json.loads(response.read())["error"]["data"]["reason"] == "not_mcp"
        line.close()
    assert [e["reason"] for e in two.recorded() if e.get("reason") == "not_mcp"] == ["not_mcp"] * 2
    other = Line(two, 2, f"{modern.url}/elsewhere")
    assert other.post({"not": "a message"}).status == 404, "the server's own answer"
    other.close()


def test_a_legacy_stream_on_one_worker_brings_answers_to_calls_of_another(two: Interlock, legacy: ServerHandle) -> None:
    reader, writer = Line(two, 1, legacy.url), Line(two, 2, legacy.url, {"Accept": "*/*"})
    stream = reader.stream("/sse")
    path = next(stream)["data"]
    handshake(writer, path, stream)

    def call(number: int, tool: str, **arguments: Any) -> Any:
        params = {"name": tool, "arguments": arguments}
        value = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        response = writer.post(value, path)
        assert (response.status, response.read()) == (202, b"Accepted")
        while (answer := json.loads(next(stream)["data"])).get("id") != number:
            pass
        return answer

    masked = call(1, "slow", ms=30)
    assert "slept 30 ms" not in text_of(masked)
    assert text_of(call(2, "echo", text="slept 5 ms")) == "slept 5 ms", "masked by the rules of its call, and no others"
    assert reason_of(call(3, "danger")) == "policy_denied"
    given = call(4, "structured_propose", n=3, _interlock=PROOF)["result"]["structuredContent"]
    ticket = {"proposal_id": given["proposal_id"], "commit_token": given["commit_token"]}
    assert call(6, "structured_commit", n=3, **ticket)["result"]["structuredContent"] == {"n": 3}
    wait_until(lambda: '"done"' in two.cli("proposals", "show", given["proposal_id"], "--json").stdout)
    listed = json.loads(ask_list(writer, path, stream))
    names = {tool["name"] for tool in listed["result"]["tools"]}
    assert "structured_propose" in names
    assert "danger" not in names
    began = decided(two, tool="slow")
    done = ended(two, began["call_id"])
    assert (done["outcome"], done["redactions"][0]["detector"]) == ("done", "custom.nap")
    assert done["writer"] != began["writer"]
    # A call that is under way when the stream ends is over, whichever worker forwarded it.
    params = {"name": "slow", "arguments": {"ms": 20_000}}
    writer.post({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}, path).read()
    reader.close()
    stream.close()  # type: ignore[attr-defined]
    waiting = decided(two, tool="slow")
    assert waiting["call_id"] != began["call_id"]
    assert ended(two, waiting["call_id"])["outcome"] == "interrupted"
    writer.close()


def ask_list(writer: Line, path: str, stream: Iterator[dict[str, str]]) -> str:
    writer.post({"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}, path).read()
    while json.loads((event := next(stream))["data"]).get("id") != 5:
        pass
    return event["data"]


async def test_sessions_of_the_sdks_legacy_client_work_until_some_met_two_workers(
    two: Interlock, legacy: ServerHandle
) -> None:
    crossed = 0
    for number in range(40):
        async with Client(sse_client(f"{legacy.url}/sse", httpx_client_factory=through(two)), mode="legacy") as client:
            answer = await client.call_tool("slow", {"ms": number})
            assert "slept" not in answer.content[0].text  # type: ignore[union-attr]
            refused = await client.call_tool("danger", {})
            assert refused.is_error
        calls = [e for e in two.recorded() if e.get("tool") == "slow" and e["kind"] in ("decided", "completed")]
        last = [e["writer"] for e in calls if e["call_id"] == calls[-1]["call_id"]]
        crossed += len(last) == 2 and len(set(last)) == 2
        if crossed >= 2:
            return
    raise AssertionError("no session met two workers")


def through(interlock: Interlock) -> Any:
    return lambda **options: httpx2.AsyncClient(proxy=interlock.proxy_url, trust_env=False, **options)


def test_an_id_in_use_on_one_worker_is_refused_by_another_and_a_cut_stream_goes_on_there(
    two: Interlock, modern: ServerHandle
) -> None:
    headers = session(two, modern)
    first, second = (Line(two, number, f"{modern.url}/mcp", headers) for number in (1, 2))
    meta = {"name": "slow", "arguments": {"ms": 60_000}, "_meta": {"progressToken": "p"}}
    response = first.post({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": meta})
    progress = next(event for event in events(response) if "progress" in event.get("data", ""))
    assert reason_of(second.call(5, "echo", text="x")) == "id_in_use"
    assert text_of(second.call(6, "echo", text="slept 1 ms")) == "slept 1 ms"
    began = decided(two, tool="slow")
    first.close()
    response.close()
    modern.wake()
    answer = resume(second, progress["id"])
    assert answer["id"] == 5
    assert "slept 60000" not in text_of(answer), "masked by the rules of its call"
    # The client was gone before the answer was there, so that is how the call ended.
    assert ended(two, began["call_id"])["outcome"] in ("upstream_error", "done")
    second.close()


def resume(line: Line, last: str) -> Any:
    """Go on after an event, again where the server ends the stream before it has more, as clients do."""
    for _ in range(200):
        for event in line.stream(**{"Last-Event-ID": last}):
            if event.get("data"):
                return json.loads(event["data"])
        time.sleep(0.2)
    raise AssertionError("the answer is not replayed")


def test_tools_listed_by_one_worker_are_called_and_committed_by_others(two: Interlock, modern: ServerHandle) -> None:
    headers = session(two, modern)
    first, second = (Line(two, number, f"{modern.url}/mcp", headers) for number in (1, 2))
    names = {tool["name"] for tool in first.ask(1, "tools/list", {})["result"]["tools"]}
    assert {"structured_propose", "structured_commit"} <= names
    assert not {"structured", "danger"} & names
    assert reason_of(second.call(2, "structured", n=3)) == "two_phase_required"
    given = second.call(3, "structured_propose", n=3, _interlock=PROOF)["result"]["structuredContent"]
    ticket = {"proposal_id": given["proposal_id"], "commit_token": given["commit_token"]}
    before = len(modern.executions())
    assert first.call(4, "structured_commit", n=3, **ticket)["result"]["structuredContent"] == {"n": 3}
    for line in (second, first):
        assert reason_of(line.call(5, "structured_commit", n=3, **ticket)) == "nonce_replay"
    assert len(modern.executions()) == before + 1
    listed = two.cli("proposals", "list", "--json")
    assert given["proposal_id"] in listed.stdout
    first.close()
    second.close()


def metrics(interlock: Interlock) -> str:
    with urllib.request.urlopen(f"{interlock.health_url}/metrics", timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_clients_of_every_worker_hear_that_tools_changed(two: Interlock, modern: ServerHandle) -> None:
    streams = []
    for number in (1, 2):
        line = Line(two, number, f"{modern.url}/mcp", session(two, modern))
        streams.append((line, line.stream()))
    wait_until(lambda: "interlock_event_streams 0" not in metrics(two))
    replace_policy(two, POLICY + "  - {id: more, description: More, action: deny, tools: [other]}\n")
    for line, stream in streams:
        told = next(json.loads(event["data"]) for event in stream if "list_changed" in event.get("data", ""))
        assert told["method"] == "notifications/tools/list_changed"
        line.close()


def test_a_call_outlives_the_worker_that_forwarded_it(two: Interlock, legacy: ServerHandle) -> None:
    reader, writer = Line(two, 1, legacy.url), Line(two, 2, legacy.url, {"Accept": "*/*"})
    stream = reader.stream("/sse")
    path = next(stream)["data"]
    handshake(writer, path, stream)
    params = {"name": "slow", "arguments": {"ms": 1500}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    assert writer.post(call, path).read() == b"Accepted"
    os.kill(two.worker_pids[1], signal.SIGKILL)
    answer = next(json.loads(event["data"]) for event in stream if '"id":1' in event.get("data", "").replace(" ", ""))
    assert "slept 1500" not in text_of(answer)
    began = decided(two, tool="slow")
    done = ended(two, began["call_id"])
    assert done["outcome"] == "done"
    assert done["writer"] != began["writer"]
    wait_for(two, lambda run: all(worker["serves"] for worker in run["workers"]))
    reader.close()
    writer.close()
