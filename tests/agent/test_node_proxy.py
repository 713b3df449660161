"""Node goes through the proxy by a script that it loads first, whatever its version and whichever agent is used."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from proxy.agent.env import ProxyEndpoint, change, through_proxy
from tests.support.harness import (
    Interlock,
    ServerHandle,
    free_port,
    make_certificates,
    start_interlock,
    start_python_server,
)
from tests.support.node_tools import NODE_DIR, OLD_NODE, clean_environment, node
from tests.support.timeouts import PATIENCE

WAYS = ("fetch", "request", "no agent", "own agent")
POLICY = """
version: 1
default: allow
rules: [{id: no-danger, action: deny, tools: [danger]}]
egress:
  rules: [{id: not-there, action: deny, hosts: [denied.test]}]
"""


def call(tool: str) -> str:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {"text": "hi"}}}
    return json.dumps(message)


@pytest.fixture(scope="module", params=["old", "new"])
def program(request: pytest.FixtureRequest) -> str:
    return str(OLD_NODE) if request.param == "old" else node()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Interlock, list[ServerHandle]]]:
    folder = tmp_path_factory.mktemp("world")
    certificates = make_certificates(folder)
    with (
        start_python_server("lenient", folder / "tls", certificates=certificates) as secure,
        start_python_server("lenient", folder / "plain") as plain,
        start_interlock(folder / "proxy", policy=POLICY, upstream_ca=certificates.ca_file) as interlock,
    ):
        yield interlock, [secure, plain]


def visit(interlock: Interlock, program: str, body: str, *urls: str, url: str | None = None) -> dict[str, str]:
    files = [str(interlock.ca_file.with_name(name)) for name in ("ca.pem", "bundle.pem", "node-proxy.cjs")]
    environ = change(clean_environment(), through_proxy(ProxyEndpoint(url or interlock.proxy_url, *files)))
    words = [program, str(NODE_DIR / "clients" / "ways.mjs"), body, *urls]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    seen: dict[str, str] = json.loads(done.stdout)
    return seen


def test_every_way_of_node_leads_through_the_proxy(program: str, world: tuple[Interlock, list[ServerHandle]]) -> None:
    interlock, servers = world
    urls = [f"{server.url}/mcp" for server in servers]
    denied = visit(interlock, program, call("danger"), *urls)
    assert {name: "policy_denied" in answer for name, answer in denied.items()} == {
        f"{way} {url}": True for url in urls for way in WAYS
    }
    allowed = visit(interlock, program, call("echo"), *urls)
    assert all("echo" in answer for answer in allowed.values()), allowed
    assert [run["tool"] for server in servers for run in server.new_executions()] == ["echo"] * len(allowed)


def test_a_refused_host_is_named_and_a_proxy_that_is_gone_is_no_way_around_it(
    program: str, world: tuple[Interlock, list[ServerHandle]]
) -> None:
    interlock, servers = world
    refused = visit(interlock, program, "x", "https://denied.test/")
    assert all("Error" in answer for answer in refused.values()), refused
    assert "the proxy refused a connection to denied.test:443" in refused["no agent https://denied.test/"]
    gone = f"http://127.0.0.1:{free_port()}"
    urls = [f"{server.url}/mcp" for server in servers]
    left = visit(interlock, program, call("echo"), *urls, url=gone)
    assert all("ECONNREFUSED" in answer for answer in left.values()), left
    assert [run for server in servers for run in server.new_executions()] == []
