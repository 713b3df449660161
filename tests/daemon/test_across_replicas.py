"""Whatever replica a request meets, everything works: sessions, streams, refusals and phases of one client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tests.daemon.lines_to import Line, text_of
from tests.faults.load import wait_until
from tests.support.across import (
    POLICY,
    PROOF,
    LegacyClient,
    check_calls,
    check_id_and_resumption,
    check_masked,
    ended,
    session,
    through,
)
from tests.support.balancer import Balancer
from tests.support.harness import Interlock, ServerHandle
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


def of_tool(replicas: list[Interlock], tool: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in replicas[0].recorded() if event["kind"] == kind and event.get("tool") == tool]


def test_a_legacy_stream_on_one_replica_brings_answers_and_refusals_to_calls_of_others(
    replicas: list[Interlock], legacy: ServerHandle
) -> None:
    client = LegacyClient(legacy, (replicas[0], 1), *((each, 1) for each in replicas[1:]))
    check_calls(client)
    wait_until(lambda: of_tool(replicas, "slow", "decided"))
    (began,) = of_tool(replicas, "slow", "decided")
    done = ended(replicas[0], began["call_id"])
    check_masked(done, began)
    assert 0 <= done["upstream_ms"] < 60_000
    client.close()


def test_an_id_in_use_on_one_replica_is_refused_by_another_and_a_cut_stream_goes_on_there(
    replicas: list[Interlock], modern: ServerHandle
) -> None:
    headers = session(replicas[0], modern)
    first, second = (Line(each, 1, f"{modern.url}/mcp", headers) for each in replicas[:2])
    check_id_and_resumption(first, second, modern)


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
    client = LegacyClient(legacy, (replicas[0], 1), (replicas[2], 1))
    begun = time.time()
    client.post(1, "tools/call", {"name": "slow", "arguments": {"ms": 1500}})
    for pid in (*replicas[2].worker_pids, replicas[2].process.pid):
        os.kill(pid, signal.SIGKILL)
    replicas[2].stopped = True
    answer = next(client.answers(1))
    assert "slept 1500" not in text_of(answer)
    other = Line(replicas[1], 1, legacy.url, {"Accept": "*/*"})
    value = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "on"}}}
    assert other.post(value, client.path).read() == b"Accepted"
    assert text_of(json.loads(next(client.stream)["data"])) == "on"
    # The `decided` of the one that was killed is in its local log, which its next start ships.
    completed = [e for e in of_tool(replicas, "slow", "completed") if e["time"] > begun + 1.0]
    assert [e["outcome"] for e in completed] in ([], ["done"])
    client.close()
    other.close()
