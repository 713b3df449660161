"""Operators' connections are bounded, in number and in time."""

from __future__ import annotations

import asyncio

import pytest

from proxy.admin_api import uvicorn_server
from proxy.admin_api.uvicorn_server import MAX_CONNECTIONS
from tests.admin_api.conftest import Served
from tests.support.timeouts import PATIENCE


async def test_a_crowd_on_the_tcp_port_keeps_nobody_from_the_socket(served: Served) -> None:
    crowd = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(MAX_CONNECTIONS + 1)]
    async with served.client("tcp") as http:
        assert (await http.get("/proposals")).status_code == 503
    async with served.client() as http:
        assert (await http.get("/proposals")).status_code == 200
    for _, writer in crowd:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("sent", [b"", b"GET /proposals HT", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /pro"])
async def test_a_connection_that_holds_on_is_ended(sent: bytes, served: Served, monkeypatch) -> None:
    monkeypatch.setattr(
        uvicorn_server, "CONNECTION_SECONDS", 2.0 if b"\r\n" in sent else 0.1
    )  # one is to be answered first
    reader, writer = await asyncio.open_unix_connection(served.admin_api.path)
    writer.write(sent)
    async with asyncio.timeout(PATIENCE):
        received = await reader.read()
    assert received.startswith(b"HTTP/1.1 401" if b"\r\n" in sent else b"")
    writer.close()
    await writer.wait_closed()


async def test_a_request_under_way_at_a_connections_end_is_answered(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(uvicorn_server, "CONNECTION_SECONDS", 1.0)
    real = served.world.proposals

    async def slow(*arguments: object) -> object:
        await asyncio.sleep(1.5)
        return await real(*arguments)  # type: ignore[arg-type]

    served.world.proposals = slow  # type: ignore[method-assign, assignment]
    async with served.client() as http:
        assert len((await http.get("/proposals")).json()["proposals"]) == 1
