"""WebSocket messages take the same gate as bodies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.daemon.conftest import Pair
from tests.daemon.waiting import next_refusal
from tests.support.harness import ServerHandle, start_interlock
from tests.support.timeouts import PATIENCE


def call(tool: str, number: int = 1) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool}})


def open_socket(pair: Pair):
    return connect(f"ws://{pair.target}/ws", proxy=pair.interlock.proxy_url, open_timeout=PATIENCE, max_size=None)


async def ask(socket: ClientConnection, text: str) -> dict:
    await socket.send(text)
    return json.loads(await socket.recv())


async def send_and_receive(socket: ClientConnection, pieces: list[str]) -> str | bytes:
    await socket.send(pieces)
    return await socket.recv()


async def test_a_denied_call_is_answered_and_never_executed(pair: Pair):
    pair.server.new_executions()
    async with open_socket(pair) as socket:
        denied = await ask(socket, call("danger", 7))
        assert denied["id"] == 7
        assert denied["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "policy_denied"
        allowed = await ask(socket, call("echo", 8))
        assert allowed["result"]["content"][0]["text"] == "ran"
    assert [run["tool"] for run in pair.server.new_executions()] == ["echo"]


async def test_both_directions_are_recorded(pair: Pair):
    async with open_socket(pair) as socket:
        await ask(socket, call("echo", 9))
    kinds = [(e["kind"], e["transport"]) for e in pair.interlock.events() if e.get("jsonrpc_id") == 9]
    assert kinds == [("decided", "websocket"), ("completed", "websocket")]


@pytest.mark.parametrize(
    "text",
    [
        call("danger").replace('"id": 1', '"id": 1, "id": 2'),
        "[" + call("danger") + "]",
        "\ufeff" + call("danger"),
        call("danger").replace("method", "Method"),
    ],
)
async def test_odd_forms_are_refused_and_never_executed(pair: Pair, text: str):
    pair.server.new_executions()
    async with open_socket(pair) as socket:
        await socket.send(text)
        refusal = await socket.recv()
        assert "interlock" in refusal.lower()
        await ask(socket, call("echo"))
    assert [run["tool"] for run in pair.server.new_executions()] == ["echo"]


async def test_a_denied_call_in_fragments_is_never_executed(pair: Pair):
    pair.server.new_executions()
    text = call("danger")
    async with open_socket(pair) as socket:
        await socket.send([text[:20], text[20:50], text[50:]])
        assert "policy_denied" in await socket.recv()
    assert pair.server.new_executions() == []


async def test_other_messages_pass_as_they_are(pair: Pair):
    async with open_socket(pair) as socket:
        await socket.send("hello  {")
        assert await socket.recv() == "hello  {"


async def test_a_message_past_the_limit_never_reaches_the_server(tmp_path, web):
    with start_interlock(tmp_path, settings={"event_limit": "64KiB"}) as interlock:
        async with open_socket(Pair(interlock, web)) as socket:
            await socket.send("x" * 70_000)
            assert "event_too_large" in await socket.recv()
            await socket.send("small")
            assert await socket.recv() == "small"
            await socket.send(random.Random(1).randbytes(1_000_000).hex())
            with pytest.raises(ConnectionClosed):
                await socket.recv()


async def test_a_message_too_large_closes_the_socket_and_leaves_an_event(tmp_path, web: ServerHandle):
    with start_interlock(tmp_path, settings={"event_limit": "64KiB"}) as interlock:
        async with open_socket(Pair(interlock, web)) as socket:
            with pytest.raises(ConnectionClosed):
                await send_and_receive(socket, [random.Random(n).randbytes(50_000).hex() for n in range(9)])
        event = next_refusal(interlock, 0)
        assert (event["kind"], event["reason"]) == ("request_refused", "event_too_large")


@pytest.mark.parametrize(("reason", "arrives"), [("bye", "bye"), (f" {call('danger')}", "")])
async def test_the_reason_of_a_close_carries_no_message(pair: Pair, reason: str, arrives: str):
    closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def listen(socket: ServerConnection) -> None:
        await socket.wait_closed()
        closed.set_result(socket.close_reason or "")

    async with serve(listen, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/", proxy=pair.interlock.proxy_url, open_timeout=PATIENCE) as socket:
            await socket.close(1000, reason)
        assert await asyncio.wait_for(closed, PATIENCE) == arrives


async def test_a_call_that_the_end_of_its_socket_leaves_unanswered_is_recorded_so(pair: Pair):
    async def hang_up(socket: ServerConnection) -> None:
        await socket.recv()

    async with serve(hang_up, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/", proxy=pair.interlock.proxy_url, open_timeout=PATIENCE) as socket:
            with pytest.raises(ConnectionClosed):
                await ask(socket, call("echo", 11))
    ended = [e["outcome"] for e in pair.interlock.events() if (e["kind"], e.get("jsonrpc_id")) == ("completed", 11)]
    assert ended == ["interrupted"]


@pytest.mark.parametrize("cut", [1, 9, 20, 60], ids=["bytes", "words", "members", "halves"])
async def test_a_call_cut_over_messages_does_not_run_at_a_server_of_lines(pair: Pair, cut: int):
    """A bridge to a line server writes all messages into one pipe."""
    ran: list[str] = []
    over = asyncio.Event()

    async def bridge(socket: ServerConnection) -> None:
        lines = ""
        async for message in socket:
            lines += message if isinstance(message, str) else message.decode()
            *whole, lines = lines.split("\n")
            for line in whole:
                with contextlib.suppress(ValueError):  # a line from which the proxy kept a part back
                    ran.append(json.loads(line)["params"]["name"])
        over.set()

    text = call("danger") + "\n"
    async with serve(bridge, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/", proxy=pair.interlock.proxy_url, open_timeout=PATIENCE) as socket:
            for at in range(0, len(text), cut):
                await socket.send(text[at : at + cut])
        await asyncio.wait_for(over.wait(), PATIENCE)
    assert ran == []


async def test_a_socket_that_speaks_mcp_takes_nothing_else(pair: Pair):
    async with open_socket(pair) as socket:
        await socket.send("hello")
        assert await socket.recv() == "hello"
        assert (await ask(socket, call("echo", 21)))["result"]["content"][0]["text"] == "ran"
        await socket.send("hello")
        assert "not_mcp" in await socket.recv()
        assert (await ask(socket, call("echo", 22)))["result"]["content"][0]["text"] == "ran"
