"""The doctor's own server: small, but a server that the SDK can talk to."""

from __future__ import annotations

import http.client
import json
from typing import Any

from proxy.doctor.mcp_server import TOOL, DoctorServer
from tests.support.timeouts import PATIENCE


def post(server: DoctorServer, message: dict[str, Any]) -> tuple[int, Any]:
    host = server.url.removeprefix("http://").removesuffix("/mcp")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.request("POST", "/mcp", json.dumps(message))
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, json.loads(body) if body else None


def test_it_counts_calls_and_lists_no_tool() -> None:
    with DoctorServer() as server:
        assert post(server, {"jsonrpc": "2.0", "id": 1, "method": "initialize"})[1]["result"]["capabilities"]
        assert post(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, None)
        params = {"name": TOOL, "arguments": {"mark": "m"}}
        assert post(server, {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params})[0] == 200
        assert post(server, {"jsonrpc": "2.0", "id": 4, "method": "tools/list"})[1]["error"]["code"] == -32601
        assert server.called_with == ["m"]
