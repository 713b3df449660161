"""A rule by `servers:` holds however a request writes the server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.harness import Certificates, Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.raw_socket import Tls, parse_answers, send_raw

POLICY = """\
version: 1
default: allow
rules:
  - {id: by-server, action: deny, servers: ["SERVER:*"], tools: [danger]}
"""
SPELLINGS = [
    *("127.0.0.1", "2130706433", "127.1", "0x7f.1", "0177.0.0.1", "0", "0x0", "0.0.0.0", "[::ffff:127.0.0.1]"),
    *("[0:0:0:0:0:ffff:7f00:1]", "localhost", "LOCALHOST", "localhost.", "127.0.0.1.", "%6cocalhost", "127%2e1"),
    *("[::ffff:127.0.0.1%25lo]", "[::ffff:127.0.0.1%lo]", "017700000001", "0x7f000001", "127.0.0.2"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("lenient", tmp_path_factory.mktemp("server"), flags=("--host", "0.0.0.0")) as running:
        yield running


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ServerHandle]:
    folder = tmp_path_factory.mktemp("secure")
    with start_python_server("lenient", folder, certificates=certificates, flags=("--host", "0.0.0.0")) as running:
        yield running


@pytest.fixture(scope="module", params=["127.0.0.1", "localhost"])
def interlock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Interlock]:
    policy = POLICY.replace("SERVER", request.param)
    folder = tmp_path_factory.mktemp("names")
    with start_interlock(folder, policy=policy, upstream_ca=certificates.ca_file) as running:
        yield running


def call(tool: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}).encode()


def post(target: str, authority: str, body: bytes) -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n"
    return (head + f"Content-Length: {len(body)}\r\n\r\n").encode() + body


@pytest.mark.parametrize("host", SPELLINGS)
def test_the_denied_tool_does_not_run_by_any_spelling_of_its_server(
    interlock: Interlock, server: ServerHandle, host: str
):
    server.new_executions()
    authority = f"{host}:{server.port}"
    send_raw("127.0.0.1", interlock.port, [post(f"http://{authority}/mcp", authority, call("danger"))])
    send_raw("127.0.0.1", interlock.port, [post("/mcp", authority, call("danger"))], connect=authority)
    assert server.new_executions() == []


@pytest.mark.parametrize("host", SPELLINGS)
def test_the_denied_tool_does_not_run_inside_tls_by_any_spelling(interlock: Interlock, secure: ServerHandle, host: str):
    secure.new_executions()
    authority = f"{host}:{secure.port}"
    tls = Tls(None, server_name=host if host[0].isalpha() else None)
    send_raw("127.0.0.1", interlock.port, [post("/mcp", authority, call("danger"))], connect=authority, tls=tls)
    assert secure.new_executions() == []


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "127.1", "localhost", "[::ffff:127.0.0.1]"])
def test_an_allowed_tool_runs_by_each_spelling_and_is_recorded_under_one_name(
    interlock: Interlock, server: ServerHandle, host: str
):
    server.new_executions()
    authority = f"{host}:{server.port}"
    request = post(f"http://{authority}/mcp", authority, call("echo"))
    assert parse_answers(send_raw("127.0.0.1", interlock.port, [request]))[0].status == 200
    assert [run["tool"] for run in server.new_executions()] == ["echo"]
    last = [event for event in interlock.events() if event["kind"] == "decided"][-1]
    assert last["server"] == f"{'localhost' if host == 'localhost' else '127.0.0.1'}:{server.port}"
