"""Connections go to the proxy as tunnels to where they were going, or are closed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.confine import forwarder as module
from proxy.confine.forwarder import TOKEN_WANTED, Forwarder, allow_descriptors
from proxy.confine.resolver import new_addresses
from tests.support.harness import environment, free_port
from tests.support.processes import REPOSITORY, start_module
from tests.support.system_needs import needs
from tests.support.timeouts import PATIENCE

REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!"


def test_a_connection_is_for_the_name_that_its_address_stands_for() -> None:
    fakes = new_addresses()
    first, first6 = fakes.assign("mcp.example") or ()
    forwarder = Forwarder(("127.0.0.1", 1), fakes)
    assert forwarder.target(first, 443) == forwarder.target(first6, 443) == "mcp.example:443"
    assert forwarder.target("203.0.113.9", 25) == "203.0.113.9:25"
    assert forwarder.target("2001:db8::9", 443) == "[2001:db8::9]:443"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "198.18.0.2", "198.19.255.255"])
def test_a_connection_to_ourselves_or_to_a_made_up_address_is_for_nobody(address: str) -> None:
    assert Forwarder(("127.0.0.1", 1), new_addresses()).target(address, 80) is None


def test_a_port_of_the_host_is_for_the_name_that_the_client_uses() -> None:
    forwarder = Forwarder(("127.0.0.1", 1), new_addresses(), host_ports=[8000])
    assert forwarder.target("127.0.0.1", 8000, b"GET / HTTP/1.1\r\nHost: LocalHost:8000\r\n\r\n") == "localhost:8000"
    assert forwarder.target("127.0.0.1", 8000, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") == "127.0.0.1:8000"
    assert forwarder.target("::1", 8000) == "[::1]:8000"
    assert forwarder.target("127.0.0.1", 8001) is None


async def heard(reader: asyncio.StreamReader) -> bytes:
    """Return what comes until the other end closes, or breaks off."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


@asynccontextmanager
async def forwarding(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, said: list[str], *, dies: bool = False, most: int = 9
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, list[bytes]]]:
    """Return a connection by way of a forwarder to a proxy that answers so and then echoes; and what that was asked."""
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert answer is not None
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        while dies and await reader.read(1 << 16):
            writer.transport.abort()
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.write(b"end")
        writer.close()

    monkeypatch.setattr(module, "original_destination", lambda _: ("203.0.113.9", 443))
    server = await asyncio.start_server(proxy, "127.0.0.1", 0) if answer is not None else None
    port = server.sockets[0].getsockname()[1] if server else free_port()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    forwarder = Forwarder(("127.0.0.1", port), new_addresses(), ("bot", "ilk_1"), said.append, most=most)
    servers = await forwarder.serve([listener])
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    async with asyncio.timeout(PATIENCE):
        yield reader, writer, asked
    writer.close()
    for each in (*servers, *([server] if server else [])):
        each.close()


async def test_a_tunnel_is_opened_in_the_agents_name_and_carries_all_of_both_ways(monkeypatch) -> None:
    sent = bytes(range(256)) * 20_000
    async with forwarding(monkeypatch, b"HTTP/1.1 200 OK\r\n\r\n", []) as (reader, writer, asked):
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == sent + b"end"
    credentials = base64.b64encode(b"bot:ilk_1").decode()
    lines = ["CONNECT 203.0.113.9:443 HTTP/1.1", "Host: 203.0.113.9:443", f"Proxy-Authorization: Basic {credentials}"]
    lines.append("Interlock-Confined: none")
    assert asked == ["\r\n".join([*lines, "", ""]).encode()]


async def test_who_speaks_plainly_is_told_why_and_who_speaks_tls_is_cut_off(monkeypatch) -> None:
    async with forwarding(monkeypatch, REFUSED, []) as (reader, writer, _):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readexactly(len(REFUSED)) == REFUSED
    async with forwarding(monkeypatch, REFUSED, []) as (reader, writer, _):
        writer.write(b"\x16\x03\x01\x00\x05hello")
        assert await heard(reader) == b""


async def test_a_proxy_that_wants_a_token_is_told_of_once(monkeypatch) -> None:
    said: list[str] = []
    async with forwarding(monkeypatch, b"HTTP/1.1 407 Who\r\n\r\n", said) as (reader, writer, _):
        writer.write(b"\x16\x03\x01")
        await reader.read()
    assert said == [TOKEN_WANTED]


@pytest.mark.parametrize("answer", [None, b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 " + b"x" * (1 << 17)])
async def test_where_the_proxy_does_not_answer_or_answers_nonsense_nothing_passes(monkeypatch, answer) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "PROXY_SECONDS", 0.3)
    monkeypatch.setattr(module, "FIRST_BYTE_SECONDS", 0.3)
    async with forwarding(monkeypatch, answer, said) as (reader, writer, _):
        writer.write(b"\x16\x03\x01secret")
        assert await heard(reader) == b""
    assert bool(said) is (answer is None)


async def test_a_proxy_that_dies_takes_its_connections_with_it(monkeypatch) -> None:
    async with forwarding(monkeypatch, b"HTTP/1.1 200 OK\r\n\r\n", [], dies=True) as (reader, writer, _):
        writer.write(b"\x16\x03\x01secret")
        assert await heard(reader) == b""


async def test_past_the_limit_connections_are_closed(monkeypatch) -> None:
    async with forwarding(monkeypatch, b"HTTP/1.1 200 OK\r\n\r\n", [], most=0) as (reader, _, asked):
        assert await heard(reader) == b""
    assert asked == []


@needs("nft", "ip")
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF root: a second user is needed in the network")
def test_all_but_the_proxys_user_is_led_to_the_proxy_and_nothing_else_leaves() -> None:
    command = [sys.executable, "-m", "tests.confine.container_scene"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    seen = told["seen"]
    assert "\\xc6\\x12\\x00\\x01" in seen["name"]
    assert seen["connection to the name"] == seen["address"] == "heard b'hello'"
    assert told["asked"] == ["mcp.test:443", "203.0.113.9:443"]
    for way in ("UDP", "UDP, IPv6", "Docker's resolver by its own port"):
        assert seen[way].startswith("PermissionError"), seen
    assert told["sent by the agent"] == 0
    assert told["sent"] == 1  # so packets are counted


def test_it_says_where_it_listens_and_stops_when_told(tmp_path: Path) -> None:
    port, resolver = free_port(), free_port()
    words = ["confine", "gateway", "--port", str(port), "--resolver-port", str(resolver), "--listen", "127.0.0.1:9"]
    words += ["--state-dir", str(tmp_path)]
    with start_module("proxy.cli", *words, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert f"TCP on port {port}, DNS on port {resolver}" in process.stdout.readline().decode()
        process.terminate()
        assert process.wait(PATIENCE) == 0


def test_it_is_known_how_many_files_the_system_lets_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (256, 1024)}
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.update(now=wanted))
    assert allow_descriptors(2560) == 1024
    assert limits["now"] == (1024, 1024)
