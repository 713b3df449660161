"""Nothing goes where policy does not let it, by whatever name, and the client hears why."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx2
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidProxyStatus

from tests.daemon.conftest import Pair
from tests.daemon.reload import replace_policy, wait_for
from tests.support.harness import Interlock, ServerHandle, start_interlock
from tests.support.raw_socket import parse_answers, send_raw
from tests.support.timeouts import PATIENCE

OPEN = """\
version: 1
default: allow
"""
POLICY = (
    OPEN
    + """\
egress:
  rules:
    - {id: no-two, description: The denied machine, action: deny, cidrs: [127.0.0.2/32]}
    - {id: no-delete, action: deny, hosts: [web.test], methods: [DELETE]}
    - {id: watched, action: deny, mode: shadow, hosts: [web.test]}
"""
)
CALL = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hi"}}}
METADATA = ["169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:169.254.169.254]", "metadata.test"]


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    settings = {"large_uploads": ["*"], "body_limit": "64KiB"}
    folder = tmp_path_factory.mktemp("proxy")
    with start_interlock(folder, policy=POLICY, program=["tests.daemon.named"], settings=settings) as running:
        yield running


@pytest.fixture
def denied() -> Iterator[socket.socket]:
    """A server on the denied machine that nobody may reach."""
    with socket.create_server(("127.0.0.2", 0)) as listener:
        listener.setblocking(False)
        yield listener
        with pytest.raises(BlockingIOError):
            listener.accept()


def get(interlock: Interlock, host: str, *more: str) -> tuple[int, str]:
    """Ask for `host` in so many words, and give the status and the reason for it."""
    head = "\r\n".join([f"GET http://{host}/ HTTP/1.1", f"Host: {host}", *more, "", ""])
    answer = parse_answers(send_raw("127.0.0.1", interlock.port, [head.encode()]))[0]
    return answer.status, json.loads(answer.body)["error"]["data"]["reason"]


def client(interlock: Interlock) -> httpx2.Client:
    return httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False)


def reason(response: httpx2.Response) -> str:
    return str(response.json()["error"]["data"]["reason"])


def last_event(interlock: Interlock) -> dict:
    return interlock.events()[-1]


@pytest.mark.parametrize("host", METADATA)
def test_a_request_to_cloud_metadata_is_answered_403_however_it_is_spelt(interlock: Interlock, host: str):
    assert get(interlock, host) == (403, "egress_denied")
    event = last_event(interlock)
    assert (event["kind"], event["reason"], event["detail"]) == (
        "request_refused",
        "egress_denied",
        {"egress": "egress_metadata"},
    )


@pytest.mark.parametrize("host", [*METADATA, "denied.test"])
def test_a_tunnel_to_a_denied_host_is_answered_403(interlock: Interlock, host: str):
    refusal = send_raw("127.0.0.1", interlock.port, [f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode()])
    answer = parse_answers(refusal)[0]
    assert answer.status == 403
    assert json.loads(answer.body)["error"]["data"]["reason"] == "egress_denied"
    assert last_event(interlock)["kind"] == "connection_refused"


@pytest.mark.parametrize("host", ["127.0.0.2", "denied.test"])
def test_an_mcp_call_to_a_denied_host_gets_an_mcp_denial_and_is_never_connected(interlock, denied, host: str):
    with client(interlock) as http:
        response = http.post(f"http://{host}:{denied.getsockname()[1]}/mcp", json=CALL)
    assert response.status_code == 200
    answer = response.json()
    assert (answer["id"], answer["result"]["isError"]) == (7, True)
    told = answer["result"]["_meta"]["mcp-interlock/denial"]
    assert (told["reason"], told["rule"]) == ("egress_denied", "no-two")
    assert "The denied machine" in answer["result"]["content"][0]["text"]
    event = last_event(interlock)
    assert (event["kind"], event["call_id"], event["tool"], event["rule"], event["decision"]) == (
        "decided",
        told["audit_id"],
        "echo",
        "no-two",
        "deny",
    )


def test_another_mcp_request_to_a_denied_host_gets_a_json_rpc_error(interlock, denied):
    body = {"jsonrpc": "2.0", "id": "a", "method": "tools/list"}
    with client(interlock) as http:
        answer = http.post(f"http://127.0.0.2:{denied.getsockname()[1]}/messages?session_id=1", json=body).json()
    assert (answer["id"], answer["error"]["data"]["reason"]) == ("a", "egress_denied")


async def test_a_websocket_to_a_denied_host_is_not_opened(interlock, denied):
    target = f"denied.test:{denied.getsockname()[1]}"
    with pytest.raises(InvalidProxyStatus) as refused:
        async with connect(f"ws://{target}/ws", proxy=interlock.proxy_url):
            pass
    assert refused.value.response.status_code == 403
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="]
    assert get(interlock, target, *upgrade) == (403, "egress_denied")


def test_a_large_upload_to_a_denied_host_is_not_streamed(interlock, denied):
    with client(interlock) as http:
        response = http.put(f"http://127.0.0.2:{denied.getsockname()[1]}/x", content=b"x" * 200_000)
    assert response.status_code in (403, 413)
    assert "egress_denied" in [event.get("reason") for event in interlock.events()]


def test_a_name_is_dialled_at_the_address_it_was_judged_by(interlock, denied, web: ServerHandle):
    with client(interlock) as http:
        seen = http.get(f"http://rebinding.test:{web.port}/echo").json()
    assert dict(seen["headers"])["host"] == f"rebinding.test:{web.port}"


def test_requests_are_judged_by_their_method_and_reported_by_shadow_rules(interlock, web: ServerHandle):
    with client(interlock) as http:
        assert http.get(f"http://web.test:{web.port}/echo").status_code == 200
        event = last_event(interlock)
        assert (event["kind"], event["decision"], event["shadow_rules"]) == ("request_shadowed", "allow", ["watched"])
        response = http.delete(f"http://web.test:{web.port}/echo")
    assert (response.status_code, response.json()["error"]["data"]["rule"]) == (403, "no-delete")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "web.test", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"])
def test_the_proxy_s_own_port_is_never_reached(interlock: Interlock, host: str):
    assert get(interlock, f"{host}:{interlock.port}") == (403, "egress_denied")


def test_a_proxy_on_every_address_is_reached_by_none(tmp_path, web: ServerHandle):
    with (
        start_interlock(tmp_path, policy=OPEN, flags=["--listen", "0.0.0.0:0"]) as interlock,
        client(interlock) as http,
    ):
        for host in ("127.0.0.1", "127.0.0.9", "localhost"):
            assert http.get(f"http://{host}:{interlock.port}/").status_code == 403
        assert http.get(f"{web.url}/echo").status_code == 200


async def test_a_new_policy_holds_for_connections_that_are_open(tmp_path, web: ServerHandle):
    with start_interlock(tmp_path, policy=OPEN) as interlock, client(interlock) as http:
        pair = Pair(interlock, web)
        async with connect(f"ws://{pair.target}/ws", proxy=interlock.proxy_url) as websocket:
            await websocket.send("hello")
            assert await websocket.recv() == "hello"
            assert http.get(f"{web.url}/echo").status_code == 200
            replace_policy(interlock, OPEN + "egress: {loopback: deny}\n")
            wait_for(interlock, lambda run: run["policy_version"] != interlock.run["policy_version"])
            response = http.get(f"{web.url}/echo")
            assert (response.status_code, reason(response)) == (403, "egress_denied")
            await websocket.send("hello again")
            assert "egress_denied" in await websocket.recv()
            await websocket.send(json.dumps(CALL))
            told = json.loads(await websocket.recv())
            assert told["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "egress_denied"
            answer = http.post(f"{web.url}/echo", json=CALL).json()
            assert answer["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "egress_denied"
            replace_policy(interlock, OPEN)
            wait_for(interlock, lambda run: run["policy_version"] == interlock.run["policy_version"])
            assert http.get(f"{web.url}/echo").status_code == 200


def test_a_name_that_leads_nowhere_is_a_bad_gateway(interlock: Interlock):
    with client(interlock) as http:
        assert http.get("http://nowhere.invalid/").status_code == 502
