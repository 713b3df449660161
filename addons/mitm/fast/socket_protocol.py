"""One TCP connection under the layers, as an asyncio protocol: what arrives goes to the layers at once.

Part of connection_handler.py, where its gain is written down.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import events


class Receiver(Protocol):
    """Takes what sockets bring: FastConnectionHandler, where each of these is described."""

    def receive(self, event: events.Event) -> None: ...
    def pause_all(self, full: SocketProtocol) -> None: ...
    def resume_all(self, full: SocketProtocol) -> None: ...
    def count_unread(self, connection: Connection, size: int) -> bool: ...
    @property
    def is_full(self) -> bool: ...


class SocketProtocol(asyncio.Protocol):
    """Replaces the stream that a connection was opened with, which still learns of its end."""

    def __init__(self, receiver: Receiver, connection: Connection, transport: asyncio.WriteTransport) -> None:
        self._receiver = receiver
        self.connection = connection
        self._transport = cast("asyncio.Transport", transport)
        # mitmproxy's writer waits on this one's `drain` and `wait_closed`.
        self._stream = cast("asyncio.Protocol", transport.get_protocol())
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.muted = False

    def attach(self, reader: asyncio.StreamReader) -> asyncio.Future[None]:
        """Take the connection over, with what its stream has read already; return what is done when it ends."""
        self._transport.set_protocol(self)
        buffered = bytes(reader._buffer)  # type: ignore[attr-defined]  # noqa: SLF001  `read` might wait
        if buffered:
            self.data_received(buffered)
        if reader.exception() is not None or reader._eof:  # type: ignore[attr-defined]  # noqa: SLF001
            self._end()
        if self._transport.get_write_buffer_size() > self._transport.get_write_buffer_limits()[1]:
            self._receiver.pause_all(self)  # `pause_writing` went to the stream, and does not come again
        if self._receiver.is_full:
            self.pause()
        else:
            self.resume()  # a stream that has buffered much has stopped reading
        return self._ended

    def data_received(self, data: bytes) -> None:
        state = self.connection.state
        # mitmproxy cancels the reading task when it closes a connection. There is no task here, so what still
        # arrives then is dropped by the connection's state.
        if not self.muted and (state is ConnectionState.OPEN or state & ConnectionState.CAN_READ):
            self._receiver.receive(events.DataReceived(self.connection, data))
            if self._receiver.count_unread(self.connection, len(data)):
                self.pause()

    def eof_received(self) -> bool:
        self._end()
        return True  # it may still be written to

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._receiver.resume_all(self)
        self._stream.connection_lost(exc)

    def pause_writing(self) -> None:
        self._stream.pause_writing()
        self._receiver.pause_all(self)

    def resume_writing(self) -> None:
        self._stream.resume_writing()
        self._receiver.resume_all(self)

    def pause(self) -> None:
        if self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
