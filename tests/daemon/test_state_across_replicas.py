"""What one replica learns holds at the others: tasks, labels over HTTP and WebSocket, masks, limits and halts."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.acceptance.test_tasks import META
from tests.daemon.test_flows import PAGE, RUN, Handler
from tests.daemon.test_stop_button import halt
from tests.faults.load import wait_until
from tests.servers.python_tasks import ENDED, SECRET
from tests.support.harness import Interlock, ServerHandle, start_python_server
from tests.support.postgres import Postgres
from tests.support.replicas import start_replicas
from tests.support.timeouts import PATIENCE

POLICY = """\
version: 1
default: allow
limits:
  - {id: three, tools: [counted], count: 3, within: 1h, per: all}
labels:
  - {id: wiki, tools: [read, read_by_socket], gives: private}
flows:
  - {id: wiki-stays, from: private, to: {tools: [post]}, by: content}
rules:
  - {id: scrub, action: redact, tools: [read_secret], on: [result], detectors: [secrets]}
"""
MASK = re.compile(r"\[secret:[^\]]+\]")


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[list[Interlock]]:
    with postgres.lend() as url, start_replicas(tmp_path_factory.mktemp("replicas"), url, 2, POLICY) as running:
        yield running


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("python_tasks", tmp_path_factory.mktemp("tasks")) as server:
        yield server


@pytest.fixture(scope="module")
def wiki() -> Iterator[str]:
    Handler.posted = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    server.shutdown()
    server.server_close()


def post(replica: Interlock, url: str, message: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Send one message on a connection of its own; return the answer."""
    accept = {"accept": "application/json, text/event-stream"}
    with httpx2.Client(proxy=replica.proxy_url, timeout=PATIENCE, trust_env=False) as client:
        answer = client.post(url, json={"jsonrpc": "2.0", "id": 1, **message}, headers=accept | headers)
    body = answer.text.partition("data: ")[2] if "event-stream" in answer.headers["content-type"] else answer.text
    found: dict[str, Any] = json.loads(body)
    return found


def call(replica: Interlock, url: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return post(replica, url, {"method": "tools/call", "params": {"name": tool, "arguments": arguments}})


def ask_tasks(replica: Interlock, server: ServerHandle, method: str, named: str, **params: Any) -> dict[str, Any]:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": named}
    return post(replica, f"{server.url}/mcp", {"method": method, "params": {**params, "_meta": META}}, **headers)


def reason(answer: dict[str, Any]) -> str | None:
    told = answer.get("result", {}).get("_meta", {}).get("mcp-interlock/denial") or {}
    found: str | None = told.get("reason")
    return found


def begin(replica: Interlock, server: ServerHandle) -> str:
    answer = ask_tasks(replica, server, "tools/call", "read_secret", name="read_secret", arguments={})
    return str(answer["result"]["taskId"])


def end(replica: Interlock, server: ServerHandle, task_id: str) -> str:
    """Return the task as a replica shows it, once it has ended."""
    found: dict[str, Any] = {}

    def over() -> bool:
        found.update(ask_tasks(replica, server, "tasks/get", task_id, taskId=task_id))
        return found["result"]["status"] in ENDED

    wait_until(over)
    return json.dumps(found)


def test_a_task_that_one_replica_began_is_masked_by_its_rules_at_another_with_the_same_mask(
    replicas: list[Interlock], tasks: ServerHandle
) -> None:
    first, second = replicas
    begun = [begin(first, tasks), begin(second, tasks)]
    shown = [end(replica, tasks, task_id) for replica in replicas for task_id in begun]
    assert not [one for one in shown if SECRET in one]
    masks = {mask for one in shown for mask in MASK.findall(one)}
    assert len(masks) == 1, "one secret has one mask everywhere"


def test_a_label_gained_at_one_replica_stops_the_flow_at_another(replicas: list[Interlock], wiki: str) -> None:
    first, second = replicas
    assert PAGE in json.dumps(call(first, wiki, "read"))
    seen = len(Handler.posted)
    assert reason(call(second, wiki, "post", body=RUN)) == "flow_denied"
    assert len(Handler.posted) == seen
    # Another argument: what `body` said before is remembered, so that a text in pieces is found.
    assert reason(call(second, wiki, "post", other="harmless words")) is None


SOCKET_PAGE = "Nobody in the harbour office knows yet which of the ferries will be sold in spring, file 551907."
SOCKET_RUN = "harbour office knows yet which of the ferries will be sold"


async def answer_with_page(socket: ServerConnection) -> None:
    async for text in socket:
        result = {"content": [{"type": "text", "text": SOCKET_PAGE}]}
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": json.loads(text)["id"], "result": result}))


async def over_socket(replica: Interlock, url: str, tool: str, body: str = "") -> dict[str, Any]:
    params = {"name": tool, "arguments": {"text": body}}
    async with connect(url, proxy=replica.proxy_url, open_timeout=PATIENCE) as socket:
        await socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
        found: dict[str, Any] = json.loads(await socket.recv())
        return found


async def test_what_a_websocket_of_one_replica_brought_leaves_by_none_of_another(replicas: list[Interlock]) -> None:
    first, second = replicas
    async with serve(answer_with_page, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        assert reason(await over_socket(second, url, "post", SOCKET_RUN)) is None
        assert reason(await over_socket(first, url, "read_by_socket")) is None
        assert reason(await over_socket(second, url, "post", SOCKET_RUN)) == "flow_denied"


async def test_a_limit_counts_calls_of_all_replicas_whatever_carries_them(replicas: list[Interlock], wiki: str) -> None:
    async with serve(answer_with_page, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"
        told = [reason(await over_socket(replica, url, "counted")) for replica in replicas]
    told += [reason(call(replicas[number % 2], wiki, "counted")) for number in range(3)]
    assert told == [None, None, None, "limit_exceeded", "limit_exceeded"]


def test_a_halt_at_one_replica_stops_calls_at_another_until_any_resumes(replicas: list[Interlock], wiki: str) -> None:
    first, second = replicas
    made = halt(first, tool="stopped")
    wait_until(lambda: reason(call(second, wiki, "stopped")) == "halted")
    assert reason(call(second, wiki, "another")) is None
    assert second.cli("resume", made["halt_id"], "--reason", "over").returncode == 0
    for replica in replicas:
        wait_until(lambda replica=replica: reason(call(replica, wiki, "stopped")) is None)
