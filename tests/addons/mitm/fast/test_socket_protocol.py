"""A socket under the layers: what its stream had read comes first, and what comes after its end is dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mitmproxy.connection import Client, ConnectionState
from mitmproxy.proxy import events

from addons.mitm.fast.socket_protocol import SocketProtocol

PATIENCE = 10.0


class Received:
    """A receiver that notes what it gets, and stops a socket after `limit` bytes."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.data, self.limit, self.full, self.is_full = b"", limit, [], False

    def receive(self, event: events.Event) -> None:
        assert isinstance(event, events.DataReceived)
        self.data += event.data

    def pause_all(self, full: SocketProtocol) -> None:
        self.full.append(full)

    def resume_all(self, full: SocketProtocol) -> None:
        if full in self.full:
            self.full.remove(full)

    def count_unread(self, _: Any, __: int) -> bool:
        return len(self.data) > self.limit


async def pair() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.StreamWriter]:
    accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *both: accepted.set_result(both), "127.0.0.1", 0)
    _, far = await asyncio.open_connection(*server.sockets[0].getsockname())
    reader, writer = await accepted
    server.close()
    return reader, writer, far


def client() -> Client:
    return Client(peername=("c", 1), sockname=("p", 2), state=ConnectionState.OPEN)


async def test_what_the_stream_had_read_comes_first_and_the_end_is_noted() -> None:
    reader, writer, far = await pair()
    far.write(b"early ")
    async with asyncio.timeout(PATIENCE):
        while not reader._buffer:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        received = Received()
        ended = SocketProtocol(received, client(), writer.transport).attach(reader)
        assert received.data == b"early "
        far.write(b"late")
        far.write_eof()
        await ended
    assert received.data == b"early late"
    assert not writer.is_closing()
    writer.close()
    far.close()


@pytest.mark.parametrize("state", [ConnectionState.CLOSED, ConnectionState.CAN_WRITE])
async def test_what_comes_after_the_layers_closed_a_connection_is_dropped(state: ConnectionState) -> None:
    reader, writer, far = await pair()
    received, connection = Received(), client()
    socket = SocketProtocol(received, connection, writer.transport)
    socket.attach(reader)
    connection.state = state
    socket.data_received(b"x")
    assert received.data == b""
    writer.close()
    far.close()


async def test_a_socket_that_brought_too_much_is_not_read_until_it_is_resumed() -> None:
    reader, writer, far = await pair()
    received = Received(limit=0)
    socket = SocketProtocol(received, client(), writer.transport)
    socket.attach(reader)
    socket.data_received(b"x")
    assert not writer.transport.is_reading()  # type: ignore[attr-defined]
    socket.resume()
    assert writer.transport.is_reading()  # type: ignore[attr-defined]
    writer.close()
    far.close()


async def test_the_receiver_learns_when_a_socket_is_full_and_when_it_is_gone() -> None:
    reader, writer, far = await pair()
    received = Received()
    socket = SocketProtocol(received, client(), writer.transport)
    ended = socket.attach(reader)
    socket.pause_writing()
    assert received.full == [socket]
    writer.transport.abort()
    async with asyncio.timeout(PATIENCE):
        await ended
    assert received.full == []
    far.close()
