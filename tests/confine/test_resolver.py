"""Every name has an address that stands for it; what is no name gets into no request."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct

import pytest

from proxy.confine.resolver import MAX_STREAMS, NETWORKS, answer_query, new_addresses, serve_names
from proxy.egress.dns import AAAA, NO_SUCH_NAME, A
from tests.egress.test_dns import query
from tests.support.timeouts import PATIENCE

TXT = 16


def told(data: bytes, fakes=None) -> tuple[int, str | None]:
    """Return the code and the address of an answer."""
    answer = answer_query(data, fakes or new_addresses())
    assert answer is not None
    (count,) = struct.unpack_from("!H", answer, 6)
    packed = answer[-4:] if struct.unpack_from("!H", data, len(data) - 4)[0] == A else answer[-16:]
    return answer[3] & 0x0F, str(ipaddress.ip_address(packed)) if count else None


def test_a_name_has_an_address_of_each_version_and_is_known_again() -> None:
    fakes = new_addresses()
    code, address = told(query("MCP.example.com"), fakes)
    assert code == 0
    assert ipaddress.ip_address(str(address)) in NETWORKS[0]
    assert fakes.name(str(address)) == "mcp.example.com"
    address6 = told(query("mcp.example.com", AAAA), fakes)[1]
    assert fakes.name(str(address6)) == "mcp.example.com"


def test_localhost_is_the_agents_own() -> None:
    assert told(query("localhost")) == (0, "127.0.0.1")
    assert told(query("app.localhost", AAAA)) == (0, "::1")


def test_of_other_types_there_is_nothing() -> None:
    assert told(query("example.com", TXT)) == (0, None)
    assert told(query("localhost", TXT)) == (0, None)


@pytest.mark.parametrize(
    "name",
    [
        "a b.example",
        "a:80",
        "evil.example\r\nX-A: b",
        "10.0.0.1",
        "0x7f000001",
        "10.0x1",
        "-a.example",
        "a-.example",
        "*.example",
        "é.example",
        "a/b",
    ],
)
def test_what_is_no_hosts_name_does_not_exist(name: str) -> None:
    assert told(query(name)) == (NO_SUCH_NAME, None)


def test_a_name_that_is_too_long_does_not_exist() -> None:
    assert told(query(".".join(["a" * 63] * 4))) == (NO_SUCH_NAME, None)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 11, query("a.b")[:-1], query("a.b")[:-1] + b"\3", b"\0\7\x81\x80" + query("a.b")[4:]],
    ids=["empty", "short", "cut", "chaos", "answer"],
)
def test_what_is_no_query_gets_no_answer(data: bytes) -> None:
    assert answer_query(data, new_addresses()) is None


async def test_questions_over_tcp_are_answered_and_past_the_limit_connections_are_closed() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    (server,) = await serve_names(new_addresses(), [], [listener])
    crowd = [await asyncio.open_connection(*listener.getsockname()) for _ in range(MAX_STREAMS + 1)]
    async with asyncio.timeout(PATIENCE):
        assert await crowd[-1][0].read() == b""
        data = query("mcp.test")
        crowd[0][1].write(len(data).to_bytes(2) + data)
        answer = await crowd[0][0].readexactly(int.from_bytes(await crowd[0][0].readexactly(2)))
    assert answer.endswith(bytes([198, 18, 0, 1]))
    for _, writer in crowd:
        writer.close()
        await writer.wait_closed()
    server.close()
