"""A call that waits for people over HTTP is kept alive: its response is an event stream, begun while it waits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance.bank import MODERN, Bank, denial, open_bank
from tests.acceptance.test_approval import HEADERS, HOLD, META, approve, no_call_waits, pending, reject, reviewing
from tests.support.harness import ServerHandle, start_interlock, start_python_server
from tests.support.node_tools import NodeClients
from tests.support.timeouts import PATIENCE

# Longer than the client's own timeout, so that it fails without signs of life; and so many of them that a slow machine
# may lose several.
CLIENT_SECONDS = 2.0
ENOUGH_SECONDS = 3.5
SETTINGS = f"hold_timeout: {PATIENCE}\nhold_timeout_progress: {PATIENCE}\nhold_keepalive: 0.2\n"


def settings_flags(folder: Path) -> tuple[str, str]:
    file = folder / "interlock.yaml"
    file.write_text(SETTINGS)
    return "--config", str(file)


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    folder = tmp_path_factory.mktemp("kept")
    with open_bank(folder, "http", HOLD, flags=settings_flags(folder)) as opened:
        yield opened


async def all_pending(bank: Bank, count: int) -> None:
    async with asyncio.timeout(PATIENCE), reviewing(bank.state_dir) as review:
        while len(await review.list(["pending"], 10)) < count:
            await asyncio.sleep(0.02)


async def approve_all(bank: Bank, count: int) -> None:
    await all_pending(bank, count)
    async with asyncio.timeout(PATIENCE), reviewing(bank.state_dir) as review:
        for one in await review.list(["pending"], 10):
            await review.approve(one["proposal_id"], "fine")


async def test_sdk_clients_wait_for_longer_than_their_own_timeouts(bank: Bank) -> None:
    assert bank.interlock is not None
    url = f"{bank.interlock.url}/mcp"
    progress_told = 0.0
    told_again = asyncio.Event()

    async def told(progress: float, total: float | None, message: str | None) -> None:
        nonlocal progress_told
        assert message is not None
        assert "operator" in message
        progress_told = progress
        told_again.set()

    async def decide() -> None:
        # Only from the later call on: on a slow machine one client may begin seconds after the other.
        async with asyncio.timeout(PATIENCE):
            await all_pending(bank, 2)
            begun = progress_told
            while progress_told <= begun + ENOUGH_SECONDS:
                told_again.clear()
                await told_again.wait()
        await approve_all(bank, 2)

    async with (
        httpx2.AsyncClient(timeout=CLIENT_SECONDS, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=MODERN) as client,
    ):
        with NodeClients() as clients:
            options = {"url": url, "legacy": True, "timeout": CLIENT_SECONDS * 1000}
            run = asyncio.to_thread(clients.order, "approval", options)
            paid = {"amount": 7, "to": "patience"}
            done, report, _ = await asyncio.gather(
                client.call_tool("transfer_funds", paid, progress_callback=told), run, decide()
            )
    assert done.structured_content == {"moved": 7}
    assert report.get("moved") == {"moved": 4}, report
    assert len(report["progress"]) > 2
    assert sorted(str(arguments["to"]) for _, arguments in bank.entries()) == ["patience", "typescript"]


def body(arguments: Any, **meta: Any) -> bytes:
    params = {"name": "transfer_funds", "arguments": arguments, "_meta": {**META, **meta}}
    return json.dumps({"jsonrpc": "2.0", "id": "q1", "method": "tools/call", "params": params}).encode()


class Stream:
    """A response that has begun, read event by event."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def until_comment(self) -> None:
        async for line in self._lines:
            if line.startswith(":"):
                return
        raise AssertionError("the stream ended without a comment")

    async def last(self) -> Any:
        """Return the last event of the stream, once that has ended as HTTP says."""
        data = [line.removeprefix("data: ") async for line in self._lines if line.startswith("data: ")]
        return json.loads(data[-1])


@asynccontextmanager
async def begun(url: str, arguments: Any, **meta: Any) -> AsyncIterator[Stream]:
    """Yield the stream of a call that waits, once the client was sent a sign of life."""
    async with (
        asyncio.timeout(PATIENCE),
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http,
        http.stream("POST", f"{url}/mcp", content=body(arguments, **meta), headers=HEADERS) as response,
    ):
        assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
        stream = Stream(response)
        await stream.until_comment()
        yield stream


async def test_a_rejection_comes_as_the_event_of_the_stream(bank: Bank) -> None:
    assert bank.interlock is not None
    before = bank.entries()
    async with begun(bank.interlock.url, {"amount": 1, "to": "nobody"}) as stream:
        await reject(bank.state_dir)
        answer = await stream.last()
    assert answer["id"] == "q1"
    assert answer["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "approval_rejected"
    assert bank.entries() == before


async def test_a_client_that_hangs_up_after_it_was_kept_waiting_makes_no_call(bank: Bank) -> None:
    assert bank.interlock is not None
    before = bank.entries()
    async with begun(bank.interlock.url, {"amount": 1, "to": "gone"}):
        waiting = await pending(bank.state_dir)
    await no_call_waits(bank, waiting["proposal_id"])
    async with reviewing(bank.state_dir) as review:
        await review.approve(waiting["proposal_id"], "too late for that one")
    assert bank.entries() == before
    async with bank.client(MODERN) as client:
        assert not (await client.call_tool("transfer_funds", {"amount": 1, "to": "gone"})).is_error
    assert len(bank.entries()) == len(before) + 1


async def test_many_that_are_kept_waiting_on_one_proposal_make_one_call(bank: Bank) -> None:
    assert bank.interlock is not None
    url, before = bank.interlock.url, bank.entries()
    paid = {"amount": 64, "to": "all"}
    ready = asyncio.Semaphore(0)

    async def one() -> Any:
        async with begun(url, paid) as stream:
            ready.release()
            return await stream.last()

    async def decide() -> None:
        for _ in range(24):
            await ready.acquire()
        await approve(bank.state_dir)

    *answers, _ = await asyncio.gather(*(one() for _ in range(24)), decide())
    assert bank.entries()[len(before) :] == [("transfer_funds", paid)]
    moved = [answer for answer in answers if answer["result"].get("structuredContent") == {"moved": 64}]
    assert len(moved) == 1
    reasons = {a["result"]["_meta"]["mcp-interlock/denial"]["reason"] for a in answers if a not in moved}
    assert reasons == {"nonce_replay"}


async def test_a_worker_that_is_killed_while_it_keeps_a_call_waiting_makes_none(bank: Bank) -> None:
    assert bank.interlock is not None
    before, paid = bank.entries(), {"amount": 8, "to": "killed"}
    async with begun(bank.interlock.url, paid) as stream:
        for pid in bank.interlock.worker_pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(httpx2.TransportError):
            await stream.last()
    await approve(bank.state_dir)
    assert bank.entries() == before
    async with bank.client(MODERN) as client:
        assert (await client.call_tool("transfer_funds", paid)).structured_content == {"moved": 8}
    assert bank.entries()[len(before) :] == [("transfer_funds", paid)]


@pytest.fixture(scope="module")
def json_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("funds", tmp_path_factory.mktemp("json"), flags=["--json"]) as server:
        yield server


async def test_a_server_that_answers_json_an_outage_and_the_proxys_own_stop(
    tmp_path: Path, json_server: ServerHandle
) -> None:
    flags = settings_flags(tmp_path)
    with start_interlock(tmp_path, f"reverse:{json_server.url}", HOLD, flags=flags) as interlock:
        async with begun(interlock.url, {"amount": 5, "to": "json"}, progressToken="p") as stream:
            await approve(interlock.state_dir)
            answer = await stream.last()
        assert answer["result"]["structuredContent"] == {"moved": 5}
        assert answer["id"] == "q1"

        async with begun(interlock.url, {"amount": 6, "to": "outage"}) as stream:
            json_server.process.kill()
            json_server.process.wait()
            await approve(interlock.state_dir)
            answer = await stream.last()
        assert (answer["id"], answer["error"]["code"]) == ("q1", -32603)
        assert "could not be reached" in answer["error"]["message"]

        async with begun(interlock.url, {"amount": 7, "to": "stop"}) as stream:
            _, answer = await asyncio.gather(asyncio.to_thread(interlock.stop), stream.last())
        assert answer["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "stopping"
    assert [run["arguments"]["amount"] for run in json_server.executions()] == [5]


async def test_a_client_that_takes_only_json_gets_its_result_as_json(bank: Bank) -> None:
    assert bank.interlock is not None
    only_json = {**HEADERS, "accept": "application/json"}
    async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
        content = body({"amount": 2, "to": "json-only"})
        call = asyncio.create_task(http.post(f"{bank.interlock.url}/mcp", content=content, headers=only_json))
        await reject(bank.state_dir)
        response = await call
    assert response.headers["content-type"] == "application/json"
    assert response.json()["result"]["isError"]


async def test_a_call_that_is_decided_at_once_is_answered_as_if_it_had_not_waited(bank: Bank) -> None:
    async with bank.client(MODERN) as client:
        waits, _ = await asyncio.gather(
            client.call_tool("transfer_funds", {"amount": 3, "to": "x"}), reject(bank.state_dir)
        )
    assert denial(waits) == "approval_rejected"
