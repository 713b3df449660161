"""Calls that wait for people, with unmodified SDK clients and servers, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_types import ElicitResult
from websockets.asyncio.client import connect

from proxy.commands.review import Review, find_token, open_review
from proxy.config import load_settings
from proxy.core.proposals import State
from tests.acceptance.bank import MODERN, Bank, denial, open_bank
from tests.support.harness import start_interlock, start_python_server
from tests.support.node_tools import NodeClients
from tests.support.timeouts import PATIENCE

WAYS = [("http", "legacy"), ("http", MODERN), ("stdio", "legacy"), ("stdio", MODERN)]
WAY_IDS = [f"{transport}-{era}" for transport, era in WAYS]
CONSOLE = "https://console.example.com"
POLICY = """\
version: 1
default: allow
rules:
  - {id: hold, action: two_phase, tools: [transfer_funds], approval: {how: HOW}}
"""
HOLD, ELICIT, TASK = (POLICY.replace("HOW", how) for how in ("hold", "elicit", "task"))
SETTINGS = f"hold_timeout: {PATIENCE}\nconsole_url: {CONSOLE}\n"


def settings_flags(folder: Path) -> tuple[str, str]:
    file = folder / "interlock.yaml"
    file.write_text(SETTINGS)
    return "--config", str(file)


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    opened: dict[tuple[str, str], Bank] = {}
    with contextlib.ExitStack() as stack:

        def bank(transport: str, policy: str = HOLD) -> Bank:
            if (transport, policy) not in opened:
                folder = tmp_path_factory.mktemp(transport)
                flags = settings_flags(folder)
                opened[transport, policy] = stack.enter_context(open_bank(folder, transport, policy, flags=flags))
            return opened[transport, policy]

        yield bank


@contextlib.asynccontextmanager
async def reviewing(state_dir: Path) -> AsyncIterator[Review]:
    settings = load_settings({"state_dir": state_dir}, {}).settings
    async with open_review(settings, find_token(state_dir, None)) as review:
        yield review


async def pending(state_dir: Path) -> Any:
    """Return the one proposal that waits, once there is one."""
    async with asyncio.timeout(PATIENCE), reviewing(state_dir) as review:
        while not (found := await review.list([State.PENDING], 10)):
            await asyncio.sleep(0.02)
    (only,) = found
    return only


async def approve(state_dir: Path) -> None:
    waiting = await pending(state_dir)
    async with reviewing(state_dir) as review:
        await review.approve(waiting["proposal_id"], "fine")


async def reject(state_dir: Path) -> None:
    waiting = await pending(state_dir)
    async with reviewing(state_dir) as review:
        await review.reject(waiting["proposal_id"], "wrong account")


@pytest.mark.parametrize(("transport", "era"), WAYS, ids=WAY_IDS)
async def test_a_call_simply_waits_and_runs_once_or_is_refused(banks: Any, transport: str, era: str) -> None:
    bank: Bank = banks(transport)
    before = len(bank.entries())
    paid = {"amount": 100, "to": f"bob-{era}"}
    async with bank.client(era) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert "transfer_funds" in tools
        assert not any(name.endswith(("_propose", "_commit")) for name in tools)
        call = asyncio.create_task(client.call_tool("transfer_funds", paid))
        waiting = await pending(bank.state_dir)
        assert bank.entries()[before:] == []
        # What waits keeps nothing else waiting.
        assert not (await client.call_tool("balance", {"account": "bob"})).is_error
        async with reviewing(bank.state_dir) as review:
            await review.approve(waiting["proposal_id"], "fine")
        assert (await call).structured_content == {"moved": 100}
        refused, _ = await asyncio.gather(client.call_tool("transfer_funds", paid), reject(bank.state_dir))
        assert denial(refused) == "approval_rejected"
    assert [entry for entry in bank.entries()[before:] if entry[0] == "transfer_funds"] == [("transfer_funds", paid)]


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_client_that_can_show_a_page_is_sent_there(banks: Any, transport: str) -> None:
    bank: Bank = banks(transport, ELICIT)
    before = len(bank.entries())
    pages: list[str] = []

    async def open_page(_: Any, params: Any) -> ElicitResult:
        pages.append(params.url)
        await approve(bank.state_dir)
        return ElicitResult(action="accept")

    async with bank.client(MODERN, elicitation_callback=open_page) as client:
        done = await client.call_tool("transfer_funds", {"amount": 5, "to": "eve"})
    assert done.structured_content == {"moved": 5}
    (page,) = pages
    assert page.startswith(f"{CONSOLE}/approvals/")
    assert "ilo_" not in page
    assert bank.entries()[before:] == [("transfer_funds", {"amount": 5, "to": "eve"})]


@pytest.mark.parametrize(("policy", "legacy", "asked"), [(HOLD, True, 0), (HOLD, False, 0), (ELICIT, False, 1)])
async def test_typescript_clients_wait_as_they_are(banks: Any, policy: str, legacy: bool, asked: int) -> None:
    bank: Bank = banks("http", policy)
    before = len(bank.entries())
    assert bank.interlock is not None
    with NodeClients() as clients:
        url = f"{bank.interlock.url}/mcp"
        report, _ = await asyncio.gather(
            asyncio.to_thread(clients.run, "approval", url, legacy=legacy), approve(bank.state_dir)
        )
    assert (report.get("moved"), len(report["pages"])) == ({"moved": 4}, asked), report
    assert bank.entries()[before:] == [("transfer_funds", {"amount": 4, "to": "typescript"})]


async def test_a_typescript_client_gets_a_task_polls_it_and_takes_its_result(banks: Any) -> None:
    bank: Bank = banks("http", TASK)
    assert bank.interlock is not None
    options = {"url": f"{bank.interlock.url}/mcp", "task": True}
    with NodeClients() as clients:
        run = asyncio.to_thread(clients.order, "approval", options)
        report, _ = await asyncio.gather(run, approve(bank.state_dir))
        assert (report["seen"][0], report["seen"][-1]) == ("taskCreated", "result"), report
        assert report["seen"][-2] == "input_required"
        assert report["moved"] == {"moved": 4}
        run = asyncio.to_thread(clients.order, "approval", options)
        report, _ = await asyncio.gather(run, reject(bank.state_dir))
        assert report["seen"][-2:] == ["failed", "error"], report
    assert bank.entries() == [("transfer_funds", {"amount": 4, "to": "typescript"})]


async def test_over_the_legacy_transport_a_call_is_refused_as_pending_and_made_again(banks: Any) -> None:
    bank: Bank = banks("sse")
    paid = {"amount": 100, "to": "bob"}
    async with bank.client("legacy") as client:
        waits = await client.call_tool("transfer_funds", paid)
        assert denial(waits) == "approval_pending"
        await approve(bank.state_dir)
        assert (await client.call_tool("transfer_funds", paid)).structured_content == {"moved": 100}
    assert bank.entries() == [("transfer_funds", paid)]


async def test_a_client_that_hangs_up_is_not_served_and_its_next_try_is(banks: Any) -> None:
    bank: Bank = banks("http")
    before = len(bank.entries())
    paid = {"amount": 9, "to": "carol"}
    assert bank.interlock is not None
    with socket.create_connection(("127.0.0.1", bank.interlock.port)) as raw:
        raw.sendall(request(paid))
        waiting = await pending(bank.state_dir)
    await no_call_waits(bank, waiting["proposal_id"])
    async with reviewing(bank.state_dir) as review:
        await review.approve(waiting["proposal_id"], "fine")
    assert bank.entries()[before:] == []
    async with bank.client(MODERN) as client:
        assert (await client.call_tool("transfer_funds", paid)).structured_content == {"moved": 9}
    assert bank.entries()[before:] == [("transfer_funds", paid)]


async def no_call_waits(bank: Bank, proposal_id: str) -> None:
    """Wait until the call of a proposal is recorded as refused."""
    assert bank.interlock is not None
    async with asyncio.timeout(PATIENCE):
        while not any(
            event["reason"] == "caller_gone" and event.get("detail", {}).get("proposal_id") == proposal_id
            for event in bank.interlock.recorded()
            if event["kind"] == "decided"
        ):
            await asyncio.sleep(0.05)


async def test_a_proposal_outlives_the_proxy(tmp_path: Path) -> None:
    paid = {"amount": 3, "to": "dora"}
    with start_python_server("funds", tmp_path / "bank", flags=["--json"]) as server:
        mode = f"reverse:{server.url}"
        with start_interlock(tmp_path, mode, HOLD, flags=settings_flags(tmp_path)) as first:
            async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
                call = asyncio.create_task(post(http, first.url, paid))
                waiting = await pending(first.state_dir)
                await asyncio.to_thread(first.stop)
                assert (await call)["_meta"]["mcp-interlock/denial"]["reason"] == "stopping"
        with start_interlock(tmp_path, mode, HOLD, flags=settings_flags(tmp_path)) as second:
            async with reviewing(second.state_dir) as review:
                await review.approve(waiting["proposal_id"], "fine")
            async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
                answers = await asyncio.gather(*(post(http, second.url, paid) for _ in range(1)))
                assert answers[0]["structuredContent"] == {"moved": 3}
        assert len(server.executions()) == 1


META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": MODERN,
    "mcp-method": "tools/call",
    "mcp-name": "transfer_funds",
}


def body(arguments: Any) -> bytes:
    params = {"name": "transfer_funds", "arguments": arguments, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def request(arguments: Any) -> bytes:
    content = body(arguments)
    head = [b"POST /mcp HTTP/1.1", b"host: x", b"content-length: %d" % len(content)]
    head += [f"{name}: {value}".encode() for name, value in HEADERS.items()]
    return b"\r\n".join(head) + b"\r\n\r\n" + content


async def post(http: httpx2.AsyncClient, url: str, arguments: Any) -> Any:
    """Call a tool; of a call that waits long, the answer is the last event of a stream."""
    said = (await http.post(f"{url}/mcp", content=body(arguments), headers=HEADERS)).text
    return json.loads(said.rpartition("data: ")[2])["result"]


async def test_a_message_of_a_websocket_waits_beside_the_others(tmp_path: Path) -> None:
    policy = HOLD.replace("transfer_funds", "danger")
    with (
        start_python_server("web", tmp_path / "web") as server,
        start_interlock(tmp_path, "regular", policy, flags=settings_flags(tmp_path)) as interlock,
    ):
        where = f"ws://{server.url.removeprefix('http://')}/ws"
        async with connect(where, proxy=interlock.proxy_url, open_timeout=PATIENCE) as ws:
            await ws.send(ws_call("danger", 1))
            await pending(interlock.state_dir)
            await ws.send(ws_call("echo", 2))
            assert json.loads(await ws.recv())["id"] == 2
            await approve(interlock.state_dir)
            assert json.loads(await ws.recv())["id"] == 1
            await ws.send(ws_call("danger", 3))
            await reject(interlock.state_dir)
            told = json.loads(await ws.recv())
            assert told["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "approval_rejected"
            await ws.send(ws_call("danger", 4, note="another"))
            await pending(interlock.state_dir)
        await approve(interlock.state_dir)
        assert [run["tool"] for run in server.executions()] == ["echo", "danger"]


def ws_call(tool: str, number: int, **arguments: str) -> str:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
