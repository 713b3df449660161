"""Traffic that is not MCP passes unharmed, and nothing of it is kept in memory on the way back."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import httpx2
import pytest

from tests.daemon.conftest import Pair
from tests.support.timeouts import PATIENCE

MIB = 1 << 20


def client(pair: Pair) -> httpx2.Client:
    return httpx2.Client(proxy=pair.interlock.proxy_url, timeout=PATIENCE, trust_env=False)


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_a_large_download_streams_at_flat_memory(pair: Pair):
    with client(pair) as http:
        http.get(f"{pair.server.url}/download?size=1000")
        before, most, size = resident(pair.interlock.worker_pids[0]), 0, 0
        with http.stream("GET", f"{pair.server.url}/download?size={100 * MIB}") as response:
            for count, chunk in enumerate(response.iter_raw()):
                size += len(chunk)
                if count % 50 == 0:
                    most = max(most, resident(pair.interlock.worker_pids[0]))
    assert size == 100 * MIB
    assert most - before < 20 * MIB


def test_the_first_byte_of_a_download_does_not_wait_for_the_last(pair: Pair):
    url = f"{pair.server.url}/download?size={2 * MIB}&pause={2 * PATIENCE}"
    with client(pair) as http, http.stream("GET", url) as response:
        assert next(response.iter_raw())


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "application/json"}, b'{ "a" : 1.0,\n "a2":[1,2] }'),
        ({"Content-Type": "application/json"}, b'{"query": "{ me { id } }", "variables": null}'),
        ({"Content-Type": "application/json"}, b'{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0x1"}]}'),
        (
            {"Content-Type": "application/json"},
            b'{"messages":[{"role":"user","content":"run \\"tools/call\\" \\ud83d"}]}',
        ),
        ({"Content-Type": "text/plain"}, b"[a link](http://example.com) about tools/call"),
        ({"Content-Type": "application/octet-stream"}, bytes(range(256))),
        ({}, b"no type at all"),
    ],
)
def test_other_bodies_reach_the_server_byte_for_byte(pair: Pair, headers: dict[str, str], body: bytes):
    with client(pair) as http:
        seen = http.post(f"{pair.server.url}/echo", content=body, headers=headers).json()
    assert seen["body"].encode("latin-1") == body


def test_the_proxy_adds_no_headers_and_removes_none(pair: Pair):
    sent = {"X-One": "1", "Accept": "application/json", "Accept-Encoding": "br", "User-Agent": "test"}
    with client(pair) as http:
        seen = http.get(f"{pair.server.url}/echo", headers=sent).json()
    assert dict(seen["headers"]) == {
        "host": pair.target,
        "connection": "keep-alive",
        "x-one": "1",
        "accept": "application/json",
        "accept-encoding": "br",
        "user-agent": "test",
    }


def test_an_upload_within_the_limit_arrives_whole(pair: Pair):
    body = os.urandom(2 * MIB)
    with client(pair) as http:
        seen = http.put(f"{pair.server.url}/upload", content=body).json()
    assert seen == {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def test_an_upload_past_the_limit_streams_to_a_listed_host_at_flat_memory(tight: Pair):
    piece = os.urandom(MIB)
    expected = hashlib.sha256(piece * 60).hexdigest()
    before = resident(tight.interlock.worker_pids[0])
    most = 0

    def body():
        nonlocal most
        for _ in range(60):
            yield piece
            most = max(most, resident(tight.interlock.worker_pids[0]))

    with client(tight) as http:
        headers = {"Content-Length": str(60 * MIB)}
        seen = http.put(f"{tight.server.url}/upload", content=body(), headers=headers).json()
    assert seen == {"size": 60 * MIB, "sha256": expected}
    assert most - before < 25 * MIB


def test_a_large_json_upload_streams_to_a_listed_host(tight: Pair):
    body = json.dumps({"file": "x" * 500_000}).encode()
    with client(tight) as http:
        seen = http.post(f"{tight.server.url}/upload", content=body).json()
    assert seen["size"] == len(body)


@pytest.mark.parametrize("method", ["tools/call", "tools\\u002fcall", "\\u0074ools/call", "tools\\/call"])
@pytest.mark.parametrize("first", [True, False])
def test_an_mcp_message_past_the_limit_is_cut_off_even_to_a_listed_host(tight: Pair, method: str, first: bool):
    padding, call = (
        '"pad":"' + "x" * 500_000 + '"',
        f'"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"danger"}}',
    )
    body = ("{" + ",".join([call, padding] if first else [padding, call]) + "}").encode()
    with client(tight) as http, pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)):
        http.post(f"{tight.server.url}/upload", content=body)
