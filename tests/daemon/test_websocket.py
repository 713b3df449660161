"""WebSocket messages take the same gate as bodies."""

from __future__ import annotations

import json
import random

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.daemon.conftest import Pair
from tests.harness import start_interlock


def call(tool: str, number: int = 1) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool}})


def open_socket(pair: Pair):
    return connect(f"ws://{pair.target}/ws", proxy=pair.interlock.proxy_url, open_timeout=5, max_size=None)


async def ask(socket: ClientConnection, text: str) -> dict:
    await socket.send(text)
    return json.loads(await socket.recv())


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
