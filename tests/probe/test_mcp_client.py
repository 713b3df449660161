"""The probe's client, against a server that is not always nice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from proxy.probe.mcp_client import CLIENT, McpClient, RequestRefusedError, RequestTimeoutError, ServerGoneError

type Answer = Callable[[dict[str, Any]], list[Any]]


class Scripted:
    """A server in this process: `answer` gives the lines that follow a message."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard: list[dict[str, Any]] = []

    async def read(self) -> bytes:
        return await self.said.get()

    async def write(self, data: bytes) -> None:
        message = json.loads(data)
        self.heard.append(message)
        for line in self.answer(message):
            self.said.put_nowait(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")


def result(message: dict[str, Any], value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


def error(message: dict[str, Any], code: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": "no"}}


async def test_a_conversation_is_opened_with_a_handshake() -> None:
    server = Scripted(lambda m: [result(m, {"serverInfo": {"name": "x"}})] if "id" in m else [])
    client = McpClient(server.read, server.write, ["/r"])
    assert await client.open_session(5) == {"serverInfo": {"name": "x"}}
    assert [m["method"] for m in server.heard] == ["initialize", "notifications/initialized"]
    await client.close()


async def test_a_stateless_server_is_spoken_to_in_its_own_way() -> None:
    server = Scripted(lambda m: [error(m, -32601)] if m["method"] == "initialize" else [result(m, {"ok": 1})])
    client = McpClient(server.read, server.write)
    assert await client.open_session(5) == {"ok": 1}
    await client.request("tools/list", {}, 5)
    assert server.heard[-1]["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    await client.close()


async def test_all_pages_are_listed() -> None:
    pages = {None: {"tools": [{"name": "a"}, 3], "nextCursor": "2"}, "2": {"tools": [{"name": "b"}]}}
    server = Scripted(lambda m: [result(m, pages[m["params"].get("cursor")])])
    client = McpClient(server.read, server.write)
    assert await client.list_all("tools/list", "tools", 5) == [{"name": "a"}, {"name": "b"}]
    await client.close()


async def test_a_list_without_end_is_ended() -> None:
    server = Scripted(lambda m: [result(m, {"tools": [{}] * 40, "nextCursor": "again"})])
    client = McpClient(server.read, server.write)
    assert len(await client.list_all("tools/list", "tools", 5)) == 500
    await client.close()


async def test_a_list_that_is_not_known_is_empty() -> None:
    server = Scripted(lambda m: [error(m, -32601)])
    client = McpClient(server.read, server.write)
    assert await client.list_all("prompts/list", "prompts", 5) == []
    await client.close()


async def test_what_is_no_message_is_passed_over() -> None:
    junk: list[Any] = [b"starting up...\n", b'{"id": 1, "id": 1}\n', [1], {"jsonrpc": "2.0", "id": 99, "result": {}}]
    server = Scripted(lambda m: [*junk, {"jsonrpc": "2.0", "method": "notifications/x"}, result(m, {"a": 1})])
    client = McpClient(server.read, server.write)
    assert await client.request("x", {}, 5) == {"a": 1}
    await client.close()


@pytest.mark.parametrize(
    "answer",
    [lambda m: [error(m, -32000)], lambda m: [result(m, None)], lambda m: [result(m, [1])]],
)
async def test_an_answer_without_a_result_is_an_error(answer: Answer) -> None:
    server = Scripted(answer)
    client = McpClient(server.read, server.write)
    with pytest.raises(RequestRefusedError):
        await client.request("x", {}, 5)
    await client.close()


async def test_a_request_that_is_not_answered_is_cancelled() -> None:
    server = Scripted(lambda m: [])
    client = McpClient(server.read, server.write)
    with pytest.raises(RequestTimeoutError, match=r"0\.05 seconds"):
        await client.request("x", {}, 0.05)
    assert server.heard[-1]["method"] == "notifications/cancelled"
    await client.close()


async def test_a_server_that_ends_is_gone() -> None:
    server = Scripted(lambda m: [b""])
    client = McpClient(server.read, server.write)
    for _ in range(2):
        with pytest.raises(ServerGoneError):
            await client.request("x", {}, 5)
    await client.close()


async def test_a_server_that_takes_nothing_is_gone() -> None:
    server = Scripted(lambda m: [])

    async def write(_: bytes) -> None:
        raise BrokenPipeError

    client = McpClient(server.read, write)
    with pytest.raises(ServerGoneError):
        await client.request("x", {}, 5)
    await client.close()


async def test_a_server_may_ask_for_roots_and_for_nothing_else() -> None:
    asked = [
        {"jsonrpc": "2.0", "id": n, "method": m}
        for n, m in (("a", "roots/list"), ("b", "ping"), ("c", "sampling/createMessage"))
    ]
    server = Scripted(lambda m: [*asked, result(m, {})] if m.get("method") == "x" else [])
    client = McpClient(server.read, server.write, ["/r"])
    await client.request("x", {}, 5)
    answers = {m["id"]: m for m in server.heard if "method" not in m}
    assert answers["a"]["result"] == {"roots": [{"uri": "file:///r"}]}
    assert answers["b"]["result"] == {}
    assert answers["c"]["error"]["code"] == -32601
    await client.close()


def test_the_client_does_not_say_that_it_probes() -> None:
    assert CLIENT == {"name": "mcp", "version": "0.1.0"}


async def test_what_the_server_asks_the_model_is_refused_and_kept() -> None:
    question = {"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {"messages": ["Say hello"]}}
    server = Scripted(lambda m: [question, result(m, {})] if m.get("method") == "tools/call" else [])
    client = McpClient(server.read, server.write)
    await client.request("tools/call", {}, 5)
    assert [text.split("\n") for text in client.take_asked()] == [["messages", "Say hello"]]
    assert client.take_asked() == []
    assert [m["error"]["code"] for m in server.heard if m.get("id") == "q"] == [-32601]
    await client.close()
