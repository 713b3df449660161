"""Flows through a real proxy with two workers: what the wiki read does not reach the web, in any form of answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tests.support.harness import Interlock, start_interlock
from tests.support.timeouts import PATIENCE

PAGE = "The launch of the new turbine is planned for the third week of October, code 884213."
RUN = "launch of the new turbine is planned for the third week"
POLICY = """
version: 1
default: allow
labels:
  - {id: wiki, servers: ["mcp.test:*"], gives: private}
  - {id: pages, hosts: [site.test], gives: untrusted}
flows:
  - {id: wiki-not-to-the-web, from: private, to: {hosts: ["*"], tools: [post]}, except: {hosts: [trusted.test]},
     by: content}
  - {id: pages-not-to-the-web, from: untrusted, to: {hosts: [closed.test]}, by: content, agents: ["*"]}
"""


class Handler(BaseHTTPRequestHandler):
    """Answers MCP calls with the page, as JSON or as events, and everything else with the page itself."""

    protocol_version = "HTTP/1.1"
    posted: list[str]

    def do_GET(self) -> None:
        self._answer(
            f"<html><p>The launch of the <b>new</b> turbine is planned for the third week</p>{self.path}</html>"
        )

    def do_POST(self) -> None:
        body = b""
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        type(self).posted.append(self.path)
        if not self.path.startswith("/mcp"):
            self._answer("ok")
            return
        message = json.loads(body)
        result = {"content": [{"type": "text", "text": PAGE}]}
        reply = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result})
        if self.path == "/mcp/events":
            self._answer(f"event: message\ndata: {reply}\n\n", "text/event-stream")
        else:
            self._answer(reply, "application/json")

    def _answer(self, text: str, kind: str = "text/html") -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    Handler.posted = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(
        tmp_path_factory.mktemp("proxy"),
        policy=POLICY,
        program=["tests.daemon.named"],
        flags=["--workers", "2"],
        settings={"large_uploads": ["*"], "body_limit": "64KiB"},
    ) as running:
        yield running


def client(interlock: Interlock) -> httpx2.Client:
    """Return a client with a connection of its own, so that calls meet both workers."""
    return httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False)


def read_wiki(interlock: Interlock, port: int, path: str = "/mcp") -> str:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read", "arguments": {}}}
    with client(interlock) as made:
        answer = made.post(f"http://mcp.test:{port}{path}", json=call, headers={"accept": "application/json"})
    assert "turbine" in answer.text
    return answer.text


def clear(interlock: Interlock) -> None:
    done = interlock.cli("flows", "clear", "agent", "--reason", "next test")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ["/mcp", "/mcp/events"])
def test_what_the_wiki_read_does_not_reach_the_web(interlock: Interlock, port: int, path: str) -> None:
    clear(interlock)
    with client(interlock) as made:
        assert made.post(f"http://web.test:{port}/x", content=RUN).text == "ok"
    read_wiki(interlock, port, path)
    seen = len(Handler.posted)
    for _ in range(4):  # whichever worker takes the connection
        with client(interlock) as made:
            refused = made.post(f"http://web.test:{port}/x", content=RUN)
            assert refused.status_code == 403
            assert refused.json()["error"]["data"]["reason"] == "flow_denied"
            assert made.get(f"http://web.test:{port}/?q=884213").status_code == 403
            assert made.post(f"http://web.test:{port}/x", content="harmless words").text == "ok"
    assert len(Handler.posted) == seen + 4
    source = refused.json()["error"]["data"]["source"]
    assert (source["server"], source["tool"], source["labels"]) == (f"mcp.test:{port}", "read", ["private"])
    decided = [event for event in interlock.events() if event.get("call_id") == source["audit_id"]]
    assert {event["kind"] for event in decided} >= {"decided", "labelled", "completed"}
    with client(interlock) as made:
        assert made.post(f"http://trusted.test:{port}/x", content=RUN).text == "ok"


def test_an_upload_too_large_to_compare_is_stopped_after_labelled_data(interlock: Interlock, port: int) -> None:
    clear(interlock)
    large = b"0123456789 abcdef" * 10_000
    with client(interlock) as made:
        assert made.post(f"http://web.test:{port}/x", content=large).text == "ok"
        read_wiki(interlock, port)
        seen = len(Handler.posted)
        # The answer may be that to the size, since the body is not read any further; the record says why.
        assert made.post(f"http://web.test:{port}/x", content=large).status_code in (403, 413)
        assert made.post(f"http://web.test:{port}/x", content=iter([large[:5000]] * 40)).status_code in (403, 413)
    assert len(Handler.posted) == seen
    assert [event["reason"] for event in interlock.events() if event["kind"] == "request_refused"][-2:].count(
        "flow_denied"
    )


def test_a_page_that_was_fetched_is_labelled(interlock: Interlock, port: int) -> None:
    clear(interlock)
    with client(interlock) as made:
        assert made.post(f"http://closed.test:{port}/x", content=RUN).text == "ok"
        assert "turbine" in made.get(f"http://site.test:{port}/page").text
        # The client has the last byte before the fingerprints are stored; until then nothing passes.
        deadline = time.monotonic() + PATIENCE
        while made.post(f"http://closed.test:{port}/x", content="harmless words").text != "ok":
            assert time.monotonic() < deadline
    with client(interlock) as made:
        assert made.post(f"http://closed.test:{port}/x", content=RUN).status_code == 403
        assert made.post(f"http://web.test:{port}/x", content=RUN).text == "ok"


def test_an_operator_sees_the_labels_and_clears_them(interlock: Interlock, port: int) -> None:
    clear(interlock)
    assert interlock.cli("flows", "show").stdout.startswith("No labels")
    read_wiki(interlock, port)
    shown = json.loads(interlock.cli("flows", "show", "agent", "--json").stdout)
    assert (shown["labels"], shown["tool"]) == (["private"], "read")
    assert 3500 < shown["seconds_left"] <= 3600
    assert "private" in interlock.cli("flows", "show", "agent").stdout
    clear(interlock)
    with client(interlock) as made:
        assert made.post(f"http://web.test:{port}/x", content=RUN).text == "ok"
    assert "labels_cleared" in {event["kind"] for event in interlock.events()}


async def test_what_came_over_a_websocket_does_not_leave_by_one(interlock: Interlock, port: int) -> None:
    clear(interlock)
    ran: list[str] = []

    async def serve_calls(socket: ServerConnection) -> None:
        async for text in socket:
            message = json.loads(text)
            ran.append(message["params"]["name"])
            result = {"content": [{"type": "text", "text": PAGE}]}
            await socket.send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))

    async with serve(serve_calls, "127.0.0.1", 0) as server:
        url = f"ws://mcp.test:{server.sockets[0].getsockname()[1]}/ws"
        async with connect(url, proxy=interlock.proxy_url, open_timeout=PATIENCE) as socket:

            async def ask(number: int, tool: str, body: str) -> Any:
                params = {"name": tool, "arguments": {"body": body}}
                call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                await socket.send(json.dumps(call))
                return json.loads(await socket.recv())["result"]

            assert "_meta" not in await ask(1, "read", "")
            denial = (await ask(2, "post", RUN))["_meta"]["mcp-interlock/denial"]
            assert (denial["reason"], denial["source"]["tool"]) == ("flow_denied", "read")
            assert "_meta" not in await ask(3, "post", "harmless words")
    with client(interlock) as made:
        assert made.post(f"http://web.test:{port}/x", content=RUN).status_code == 403
    assert ran == ["read", "post"]
