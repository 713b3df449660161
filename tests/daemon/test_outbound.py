"""Secrets do not leave in plain requests for hosts that may have none, by whatever way they go."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import Frame, Opcode

from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.timeouts import PATIENCE

SECRET = "ghp_" + "Zx8Kq2" * 6
POLICY = """\
version: 1
default: allow
egress:
  secrets: report
  rules:
    - {id: trusted, action: secrets, secrets: allow, hosts: [trusted.test]}
    - {id: closed, action: secrets, secrets: deny, hosts: [closed.test]}
"""
LARGE = b"0123456789 " * 20_000


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("web", tmp_path_factory.mktemp("web"), requests=True) as server:
        yield server


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    settings = {"large_uploads": ["*"], "body_limit": "64KiB"}
    with start_interlock(
        tmp_path_factory.mktemp("proxy"), policy=POLICY, program=["tests.daemon.named"], settings=settings
    ) as running:
        yield running


@pytest.fixture
def client(interlock: Interlock) -> Iterator[httpx2.Client]:
    with httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False) as made:
        yield made


def arrived(web: ServerHandle) -> int:
    return len(web.requests())


def carried(interlock: Interlock) -> dict[str, Any]:
    return [event for event in interlock.events() if event["kind"] in ("request_refused", "request_reported")][-1]


WAYS: dict[str, dict[str, Any]] = {
    "json": {"json": {"a": {"b": SECRET}}},
    "form": {"data": {"a": SECRET}},
    "multipart": {"files": {"f": ("a.txt", f"key {SECRET}")}},
    "text": {"content": f"my key is {SECRET}"},
    "gzip": {"content": gzip.compress(SECRET.encode()), "headers": {"Content-Encoding": "gzip"}},
    "base64": {"content": base64.b64encode(f"token {SECRET}".encode())},
    "query": {"params": {"q": SECRET}},
    "header": {"headers": {"X-Data": SECRET}},
    "mcp": {"params": {"q": SECRET}, "json": {"jsonrpc": "2.0", "id": 1, "method": "ping"}},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_does_not_leave_for_a_closed_host(client, interlock: Interlock, web: ServerHandle, way: str):
    seen = arrived(web)
    response = client.post(f"http://closed.test:{web.port}/echo", **WAYS[way])
    assert b"secret_found" in response.content
    assert response.status_code == (200 if way == "mcp" else 403)
    assert arrived(web) == seen
    assert SECRET not in json.dumps(interlock.events())
    assert SECRET not in interlock.errors()


def test_the_event_says_what_and_where_and_never_the_value(client, interlock: Interlock, web: ServerHandle):
    client.get(f"http://closed.test:{web.port}/echo", params={"q": SECRET})
    event = carried(interlock)
    assert (event["kind"], event["reason"], event["rule"], event["decision"]) == (
        "request_refused",
        "secret_found",
        "closed",
        "deny",
    )
    assert [(f["detector"], f["path"]) for f in event["redactions"]] == [("secrets.github-token", "query.q[0]")]


def test_a_secret_that_is_how_one_logs_in_passes(client, web: ServerHandle):
    headers = {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET, "Cookie": f"a={SECRET}"}
    assert client.post(f"http://closed.test:{web.port}/echo", content="hello", headers=headers).status_code == 200


def test_a_secret_passes_where_it_may_and_is_told_of_where_it_is_reported(
    client, interlock: Interlock, web: ServerHandle
):
    client.get(f"http://web.test:{web.port}/echo", params={"q": SECRET})
    events = len(interlock.events())
    assert client.post(f"http://trusted.test:{web.port}/echo", content=SECRET).json()["body"] == SECRET
    assert not [e for e in interlock.events()[events:] if e["kind"] == "request_reported"]
    assert client.post(f"http://web.test:{web.port}/echo", content=SECRET).json()["body"] == SECRET
    event = carried(interlock)
    assert (event["kind"], event["rule"], event["decision"]) == ("request_reported", "egress.secrets", "allow")


def test_a_body_that_cannot_be_read_is_refused(client, web: ServerHandle):
    seen = arrived(web)
    response = client.post(f"http://closed.test:{web.port}/echo", content=b"xyz", headers={"Content-Encoding": "rot13"})
    assert response.status_code == 403
    assert response.json()["error"]["data"]["reason"] == "unknown_encoding"
    assert arrived(web) == seen


def test_a_large_upload_without_a_secret_passes_whole(client, web: ServerHandle):
    assert client.post(f"http://closed.test:{web.port}/upload", content=LARGE).json()["size"] == len(LARGE)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_secret_in_a_large_upload_stops_it(client, interlock: Interlock, web: ServerHandle, encoding: str):
    noise = b" ".join(base64.b85encode(bytes([n % 256, n // 256 % 256] * 20)) for n in range(20_000))
    body = noise + b" " + SECRET.encode() + b" " + LARGE
    sent = gzip.compress(body, 0) if encoding == "gzip" else body
    response = client.post(
        f"http://closed.test:{web.port}/upload", content=sent, headers={"Content-Encoding": encoding}
    )
    assert response.status_code == 403
    event = carried(interlock)
    assert (event["kind"], event["reason"], event["rule"]) == ("request_refused", "secret_found", "closed")
    assert event["redactions"][0]["path"] == "body"


def test_a_secret_in_the_address_of_a_large_upload_stops_it(client, interlock: Interlock, web: ServerHandle):
    seen, events = arrived(web), len(interlock.events())
    response = client.post(f"http://closed.test:{web.port}/upload", params={"q": SECRET}, content=LARGE)
    assert response.status_code in (403, 413)
    assert "secret_found" in [event.get("reason") for event in interlock.events()[events:]]
    assert arrived(web) == seen


def test_a_large_upload_is_told_of_where_secrets_are_reported(client, interlock: Interlock, web: ServerHandle):
    response = client.post(f"http://web.test:{web.port}/upload", content=LARGE + SECRET.encode())
    assert response.json()["size"] == len(LARGE) + len(SECRET)
    event = carried(interlock)
    assert (event["kind"], event["reason"]) == ("request_reported", "secret_found")


def test_where_looking_through_fails_nothing_leaves(tmp_path, web: ServerHandle):
    seen = arrived(web)
    settings = {"large_uploads": ["*"], "body_limit": "64KiB"}
    told = tmp_path / "part"
    told.write_text("customs")
    with (
        start_interlock(
            tmp_path, policy=POLICY, program=["tests.daemon.faulty", str(told)], settings=settings
        ) as interlock,
        httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False) as client,
    ):
        for body in (b"", b"hello", LARGE):
            response = client.post(f"{web.url}/upload", content=body)
            assert response.status_code >= 400
        reasons = [event.get("reason") for event in interlock.events()]
    assert "internal_error" in reasons
    assert arrived(web) == seen


def socket(interlock: Interlock, web: ServerHandle) -> Any:
    return connect(f"ws://closed.test:{web.port}/ws", proxy=interlock.proxy_url, open_timeout=PATIENCE)


@pytest.mark.parametrize(
    "messages",
    [[f"a {SECRET}"], [SECRET[:20], SECRET[20:]], [json.dumps({"t": SECRET[:20]}), json.dumps({"t": SECRET[20:]})]],
)
async def test_a_secret_in_websocket_messages_is_stopped(interlock: Interlock, web: ServerHandle, messages: list[str]):
    async with socket(interlock, web) as ws:
        answers = []
        for message in messages:
            await ws.send(message)
            answers.append(str(await ws.recv()))
        assert "secret_found" in answers[-1]
        assert not any("secret_found" in answer for answer in answers[:-1])
        await ws.send("fine")
        assert await ws.recv() == "fine"


class Pinged(ServerConnection):
    """A server's side that notes what pings bring."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.pings: list[bytes] = []

    def process_event(self, event: Any) -> None:
        if isinstance(event, Frame) and event.opcode is Opcode.PING:
            self.pings.append(bytes(event.data))
        super().process_event(event)


async def test_a_ping_reaches_a_closed_host_without_what_could_be_a_secret(interlock: Interlock):
    async def tell(connection: Any) -> None:
        await connection.recv()
        await connection.send(json.dumps([ping.decode() for ping in connection.pings]))

    async with serve(tell, "127.0.0.1", 0, create_connection=Pinged, ping_interval=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        for host, expected in (("closed", ["", "0123456789abcdef"]), ("web", [SECRET, "0123456789abcdef"])):
            url = f"ws://{host}.test:{port}/"
            async with connect(url, proxy=interlock.proxy_url, open_timeout=PATIENCE, ping_interval=None) as ws:
                await ws.ping(SECRET.encode())
                await asyncio.wait_for(await ws.ping(b"0123456789abcdef"), PATIENCE)
                await ws.send("tell")
                assert json.loads(await ws.recv()) == expected
