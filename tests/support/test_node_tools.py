"""The contract of the TypeScript test servers and clients, without a proxy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.support.harness import Certificates, free_port
from tests.support.node_tools import ClientName, run_client, server_command, start_node_server
from tests.support.timeouts import PATIENCE

ACCEPT = {"Accept": "application/json, text/event-stream"}


def call(tool: str, arguments: dict[str, object]) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def post(url: str, tool: str, arguments: dict[str, object]) -> dict[str, object]:
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as client:
        answer: dict[str, object] = client.post(f"{url}/mcp", json=call(tool, arguments), headers=ACCEPT).json()
    return answer


def test_a_server_logs_each_execution_with_all_its_arguments(tmp_path: Path) -> None:
    with start_node_server("v1-raw", tmp_path, flags=["--stateless", "--json"]) as server:
        post(server.url, "echo", {"text": "hi", "extra": [1]})
        post(server.url, "no-such-tool", {})
        post(server.url, "danger", {})
        assert server.executions() == [
            {"tool": "echo", "arguments": {"text": "hi", "extra": [1]}},
            {"tool": "danger", "arguments": {}},
        ]


def test_structured_results_match_their_schema(tmp_path: Path) -> None:
    with start_node_server("v1-raw", tmp_path, flags=["--stateless", "--json"]) as server:
        result = post(server.url, "structured", {"n": 3})["result"]
    assert isinstance(result, dict)
    assert result["structuredContent"] == {"n": 3, "square": 9}


def test_a_server_ends_when_its_stdin_closes(tmp_path: Path) -> None:
    command = [*server_command("v1-raw"), "--port", "0", "--log", str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert json.loads(process.stdout.readline())["port"] > 0
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_a_client_refuses_a_server_whose_certificate_nobody_vouches_for(
    certificates: Certificates, tmp_path: Path
) -> None:
    with start_node_server("v1-raw", tmp_path, certificates=certificates) as server:
        untrusted = run_client("v1", f"{server.url}/mcp")
        trusted = run_client("v1", f"{server.url}/mcp", env={"NODE_EXTRA_CA_CERTS": str(certificates.ca_file)})
    assert "certificate" in untrusted["connect"]["error"]["cause"]
    assert trusted["connect"]["ok"]


@pytest.mark.parametrize("client", ["v1", "v2", "v1-sse"])
def test_a_client_that_cannot_connect_says_so(client: ClientName) -> None:
    report = run_client(client, f"http://127.0.0.1:{free_port()}/mcp")
    assert not report["connect"]["ok"]
    assert report["connect"]["error"]["message"]
