"""Whatever worker a request meets, everything works: sessions, streams, refusals, tools, phases, announcements."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client
from mcp.client.sse import sse_client

from tests.daemon.lines_to import Line, reason_of, text_of
from tests.daemon.reload import replace_policy, wait_for
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
from tests.support.harness import Interlock, ServerHandle, start_interlock
from tests.support.timeouts import PATIENCE


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("two"), policy=POLICY, flags=["--workers", "2"]) as running:
        yield running


def decided(interlock: Interlock, **fields: Any) -> dict[str, Any]:
    wanted = {"kind": "decided", **fields}
    found = [e for e in interlock.recorded() if wanted.items() <= e.items()]
    return found[-1]


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
    client = LegacyClient(legacy, (two, 1), (two, 2))
    proposal = check_calls(client)
    wait_until(lambda: '"done"' in two.cli("proposals", "show", proposal, "--json").stdout)
    names = {tool["name"] for tool in client.ask(6, "tools/list", {})["result"]["tools"]}
    assert "structured_propose" in names
    assert "danger" not in names
    began = decided(two, tool="slow")
    check_masked(ended(two, began["call_id"]), began)
    # A call that is under way when the stream ends is over, whichever worker forwarded it.
    client.post(9, "tools/call", {"name": "slow", "arguments": {"ms": 20_000}})
    client.hang_up()
    waiting = decided(two, tool="slow")
    assert waiting["call_id"] != began["call_id"]
    assert ended(two, waiting["call_id"])["outcome"] == "interrupted"
    client.close()


async def test_sessions_of_the_sdks_legacy_client_work_until_some_met_two_workers(
    two: Interlock, legacy: ServerHandle
) -> None:
    crossed = 0
    for number in range(40):
        async with Client(
            sse_client(f"{legacy.url}/sse", httpx_client_factory=through(two.proxy_url)), mode="legacy"
        ) as client:
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


def test_an_id_in_use_on_one_worker_is_refused_by_another_and_a_cut_stream_goes_on_there(
    two: Interlock, modern: ServerHandle
) -> None:
    headers = session(two, modern)
    first, second = (Line(two, number, f"{modern.url}/mcp", headers) for number in (1, 2))
    check_id_and_resumption(first, second, modern)
    # The client was gone before the answer was there, so that is how the call ended.
    assert ended(two, decided(two, tool="slow")["call_id"])["outcome"] in ("upstream_error", "done")


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
    client = LegacyClient(legacy, (two, 1), (two, 2))
    client.post(1, "tools/call", {"name": "slow", "arguments": {"ms": 1500}})
    os.kill(two.worker_pids[1], signal.SIGKILL)
    answer = next(client.answers(1))
    assert "slept 1500" not in text_of(answer)
    began = decided(two, tool="slow")
    done = ended(two, began["call_id"])
    assert done["outcome"] == "done"
    assert done["writer"] != began["writer"]
    wait_for(two, lambda run: all(worker["serves"] for worker in run["workers"]))
    client.close()
