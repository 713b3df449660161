"""Whatever replica a request meets, everything works: sessions, streams, refusals and phases of one client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.daemon.lines_to import Line, events, reason_of, text_of
from tests.daemon.test_across_workers import POLICY, PROOF, handshake, resume, session
from tests.faults.load import wait_until
from tests.support.balancer import Balancer
from tests.support.harness import Interlock, ServerHandle, start_python_server
from tests.support.postgres import Postgres
from tests.support.replicas import start_replicas
from tests.support.timeouts import PATIENCE


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[list[Interlock]]:
    with postgres.lend() as url, start_replicas(tmp_path_factory.mktemp("replicas"), url, 3, POLICY) as running:
        wait_until(lambda: alive(postgres, url) == 3)
        yield running


def alive(postgres: Postgres, url: str) -> int:
    return int(postgres.psql("SELECT count(DISTINCT replica) FROM call_owners", url))


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


def of_tool(replicas: list[Interlock], tool: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in replicas[0].recorded() if event["kind"] == kind and event.get("tool") == tool]


def once_completed(replicas: list[Interlock], call_id: str) -> dict[str, Any]:
    """Return the event that says how a call ended, once it is there; there is one."""

    def found() -> list[dict[str, Any]]:
        return [e for e in replicas[0].recorded() if e["kind"] == "completed" and e["call_id"] == call_id]

    wait_until(found)
    (event,) = found()
    return event


def through(url: str) -> Any:
    return lambda **options: httpx2.AsyncClient(proxy=url, trust_env=False, **options)


def test_a_legacy_stream_on_one_replica_brings_answers_and_refusals_to_calls_of_others(
    replicas: list[Interlock], legacy: ServerHandle
) -> None:
    reader = Line(replicas[0], 1, legacy.url)
    writers = [Line(each, 1, legacy.url, {"Accept": "*/*"}) for each in replicas[1:]]
    stream = reader.stream("/sse")
    path = next(stream)["data"]
    handshake(writers[0], path, stream)

    def call(number: int, tool: str, **arguments: Any) -> Any:
        value = {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        assert writers[number % 2].post(value, path).read() == b"Accepted"
        while (answer := json.loads(next(stream)["data"])).get("id") != number:
            pass
        return answer

    assert "slept 30 ms" not in text_of(call(1, "slow", ms=30))
    assert text_of(call(2, "echo", text="slept 5 ms")) == "slept 5 ms", "masked by the rules of its call, and no others"
    assert reason_of(call(3, "danger")) == "policy_denied"
    given = call(4, "structured_propose", n=3, _interlock=PROOF)["result"]["structuredContent"]
    ticket = {"proposal_id": given["proposal_id"], "commit_token": given["commit_token"]}
    assert call(5, "structured_commit", n=3, **ticket)["result"]["structuredContent"] == {"n": 3}
    wait_until(lambda: of_tool(replicas, "slow", "decided"))
    (began,) = of_tool(replicas, "slow", "decided")
    done = once_completed(replicas, began["call_id"])
    assert (done["outcome"], done["redactions"][0]["detector"]) == ("done", "custom.nap")
    assert done["writer"] != began["writer"]
    assert 0 <= done["upstream_ms"] < 60_000
    for line in (reader, *writers):
        line.close()


def test_an_id_in_use_on_one_replica_is_refused_by_another_and_a_cut_stream_goes_on_there(
    replicas: list[Interlock], modern: ServerHandle
) -> None:
    headers = session(replicas[0], modern)
    first, second = (Line(each, 1, f"{modern.url}/mcp", headers) for each in replicas[:2])
    meta = {"name": "slow", "arguments": {"ms": 60_000}, "_meta": {"progressToken": "p"}}
    response = first.post({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": meta})
    progress = next(event for event in events(response) if "progress" in event.get("data", ""))
    assert reason_of(second.call(5, "echo", text="x")) == "id_in_use"
    assert text_of(second.call(6, "echo", text="slept 1 ms")) == "slept 1 ms"
    first.close()
    response.close()
    modern.wake()
    answer = resume(second, progress["id"])
    assert answer["id"] == 5
    assert "slept 60000" not in text_of(answer), "masked by the rules of its call"
    second.close()


async def test_clients_of_the_sdk_work_behind_a_balancer_by_request(
    replicas: list[Interlock], modern: ServerHandle, legacy: ServerHandle
) -> None:
    with Balancer([each.port for each in replicas]) as balancer:
        for client in (
            Client(sse_client(f"{legacy.url}/sse", httpx_client_factory=through(balancer.url)), mode="legacy"),
            Client(
                streamable_http_client(f"{modern.url}/mcp", http_client=through(balancer.url)(timeout=PATIENCE)),
                mode="legacy",
            ),
        ):
            async with client:
                for number in range(6):
                    answer = await client.call_tool("slow", {"ms": number})
                    assert "slept" not in answer.content[0].text  # type: ignore[union-attr]
                    refused = await client.call_tool("danger", {})
                    assert refused.is_error
                tools = {tool.name for tool in (await client.list_tools()).tools}
                assert "structured_propose" in tools
                given = await client.call_tool("structured_propose", {"n": 3, "_interlock": PROOF})
                ticket = given.structured_content or {}
                words = {"n": 3, "proposal_id": ticket["proposal_id"], "commit_token": ticket["commit_token"]}
                done = await client.call_tool("structured_commit", words)
                assert done.structured_content == {"n": 3}
                assert (await client.call_tool("structured_commit", words)).is_error

    def unended() -> set[str]:
        seen = replicas[0].recorded()
        allowed = {
            e["call_id"] for e in seen if e["kind"] == "decided" and e["decision"] == "allow" and "jsonrpc_id" in e
        }
        return allowed - {e["call_id"] for e in seen if e["kind"] == "completed"}

    # Sessions met every replica, and the events of all of them are there.
    wait_until(lambda: len({event["writer"] for event in of_tool(replicas, "slow", "completed")}) == 3)
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not unended(), 15)
    left = unended()
    assert not left, json.dumps([e for e in replicas[0].recorded() if e.get("call_id") in left])


def test_a_call_outlives_the_replica_that_forwarded_it_and_its_id_is_free_again(
    replicas: list[Interlock], legacy: ServerHandle
) -> None:
    reader, writer = Line(replicas[0], 1, legacy.url), Line(replicas[2], 1, legacy.url, {"Accept": "*/*"})
    stream = reader.stream("/sse")
    path = next(stream)["data"]
    handshake(writer, path, stream)
    begun = time.time()
    params = {"name": "slow", "arguments": {"ms": 1500}}
    assert (
        writer.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, path).read() == b"Accepted"
    )
    for pid in (*replicas[2].worker_pids, replicas[2].process.pid):
        os.kill(pid, signal.SIGKILL)
    replicas[2].stopped = True
    answer = next(json.loads(event["data"]) for event in stream if '"id":1' in event.get("data", "").replace(" ", ""))
    assert "slept 1500" not in text_of(answer)
    writer.close()
    other = Line(replicas[1], 1, legacy.url, {"Accept": "*/*"})
    value = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "on"}}}
    assert other.post(value, path).read() == b"Accepted"
    assert text_of(json.loads(next(stream)["data"])) == "on"
    # The `decided` of the one that was killed is in its local log, which its next start ships.
    completed = [e for e in of_tool(replicas, "slow", "completed") if e["time"] > begun + 1.0]
    assert [e["outcome"] for e in completed] in ([], ["done"])
    reader.close()
    other.close()
