"""Who is calling: tokens are checked, recorded as names, and never sent on."""

from __future__ import annotations

import base64
import socket

import httpx2

from tests.daemon.conftest import Pair
from tests.daemon.waiting import next_refusal, refusals
from tests.support.harness import ServerHandle, start_interlock
from tests.support.raw_socket import Answer, parse_answers, send_raw
from tests.support.timeouts import PATIENCE

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}


def through(proxy: str) -> httpx2.Client:
    return httpx2.Client(proxy=proxy, timeout=PATIENCE, trust_env=False)


def with_token(pair: Pair, name: str, token: str) -> str:
    return f"http://{name}:{token}@127.0.0.1:{pair.interlock.port}"


def add_agent(pair: Pair, name: str) -> str:
    done = pair.interlock.cli("agents", "add", name)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_caller_without_credentials_is_the_default_agent(pair: Pair):
    with through(pair.interlock.proxy_url) as http:
        assert http.post(f"{pair.server.url}/echo", json=CALL).status_code == 200
    event = pair.interlock.events()[-1]
    assert (event["agent"], event["authenticated"], event["tool"]) == ("agent", False, "danger")


def test_a_token_names_the_agent_and_never_reaches_the_server(pair: Pair):
    token = add_agent(pair, "build-bot")
    with through(with_token(pair, "build-bot", token)) as http:
        seen = http.get(f"{pair.server.url}/echo").json()
        http.post(f"{pair.server.url}/echo", json=CALL)
    assert "proxy-authorization" not in dict(seen["headers"])
    event = pair.interlock.events()[-1]
    assert (event["agent"], event["authenticated"]) == ("build-bot", True)
    assert token not in pair.interlock.errors()
    assert token not in (pair.interlock.state_dir / "agents.json").read_text()


def test_a_tunnel_belongs_to_the_agent_that_opened_it(pair: Pair):
    token = add_agent(pair, "tunneller")
    basic = base64.b64encode(f"tunneller:{token}".encode()).decode()
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}}'
    inner = (
        f"POST /echo HTTP/1.1\r\nHost: {pair.target}\r\nContent-Length: {len(body)}\r\n"
        "Proxy-Authorization: Basic c29tZTpvbmU=\r\n\r\n"
    ).encode() + body
    connect = f"CONNECT {pair.target} HTTP/1.1\r\nHost: {pair.target}\r\nProxy-Authorization: Basic {basic}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", pair.interlock.port), timeout=PATIENCE) as tunnel:
        assert answer_of(tunnel, connect.encode()).status == 200
        assert b"policy_denied" in answer_of(tunnel, inner).body
    assert pair.interlock.events()[-1]["agent"] == "tunneller"


def test_a_wrong_token_is_refused_with_407_for_requests_and_tunnels(pair: Pair):
    add_agent(pair, "careful")
    with through(with_token(pair, "careful", "wrong")) as http:
        answer = http.get(f"{pair.server.url}/echo")
    assert (answer.status_code, answer.json()["error"]["data"]["reason"]) == (407, "agent_auth")
    connect = f"CONNECT {pair.target} HTTP/1.1\r\nHost: {pair.target}\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
    refused = parse_answers(send_raw("127.0.0.1", pair.interlock.port, [connect.encode()]))
    assert refused[0].status == 407


def test_a_revoked_token_is_refused_at_once(pair: Pair):
    token = add_agent(pair, "leaver")
    with through(with_token(pair, "leaver", token)) as http:
        assert http.get(f"{pair.server.url}/echo").status_code == 200
        assert pair.interlock.cli("agents", "revoke", "leaver").returncode == 0
        assert http.get(f"{pair.server.url}/echo").status_code == 407


def test_a_refused_request_and_a_refused_tunnel_leave_an_event_each(pair: Pair):
    seen = len(refusals(pair.interlock))
    for line in (f"GET http://{pair.target}/echo", f"CONNECT {pair.target}"):
        head = f"{line} HTTP/1.1\r\nHost: {pair.target}\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
        assert parse_answers(send_raw("127.0.0.1", pair.interlock.port, [head.encode()]))[0].status == 407
    for at in (seen, seen + 1):
        event = next_refusal(pair.interlock, at)
        assert (event["kind"], event["reason"], event["server"]) == ("request_refused", "agent_auth", pair.target)
        assert (event["agent"], event["authenticated"]) == ("agent", False)


def test_a_revoked_agents_open_tunnel_is_refused_at_the_next_request(pair: Pair):
    basic = base64.b64encode(f"mole:{add_agent(pair, 'mole')}".encode()).decode()
    seen = len(refusals(pair.interlock))
    get = f"GET /echo HTTP/1.1\r\nHost: {pair.target}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", pair.interlock.port), timeout=PATIENCE) as tunnel:
        connect = f"CONNECT {pair.target} HTTP/1.1\r\nHost: {pair.target}\r\nProxy-Authorization: Basic {basic}\r\n\r\n"
        assert answer_of(tunnel, connect.encode()).status == 200
        assert answer_of(tunnel, get).status == 200
        assert pair.interlock.cli("agents", "revoke", "mole").returncode == 0
        assert answer_of(tunnel, get).status == 407
    event = next_refusal(pair.interlock, seen)
    assert (event["reason"], event["agent"], event["authenticated"]) == ("agent_auth", "mole", False)


def answer_of(tunnel: socket.socket, request: bytes) -> Answer:
    tunnel.sendall(request)
    received = b""
    while not (answers := parse_answers(received, ended=received.startswith(b"HTTP/1.1 200 Connection"))):
        chunk = tunnel.recv(65536)
        assert chunk, received
        received += chunk
    return answers[0]


def test_a_caller_without_credentials_is_refused_where_they_are_required(tmp_path, web: ServerHandle):
    with start_interlock(tmp_path, settings={"agent_auth": "required"}) as interlock:
        pair = Pair(interlock, web)
        with through(interlock.proxy_url) as http:
            assert http.get(f"{web.url}/echo").status_code == 407
        token = add_agent(pair, "known")
        with through(with_token(pair, "known", token)) as http:
            assert http.get(f"{web.url}/echo").status_code == 200


def test_a_broken_agents_file_refuses_and_does_not_pass(tmp_path, web: ServerHandle):
    with start_interlock(tmp_path) as interlock:
        (interlock.state_dir / "agents.json").write_text("{broken")
        with through(f"http://a:b@127.0.0.1:{interlock.port}") as http:
            assert http.get(f"{web.url}/echo").status_code == 407
