"""One TCP connection under the layers: what arrives on it goes to them at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import events

if TYPE_CHECKING:
    from mitmproxy.connection import Connection


class Taker(Protocol):
    """Takes what wires bring."""

    def take(self, event: events.Event) -> None:
        """Take an event."""
        ...

    def press(self, wire: Wire) -> None:
        """Be told that a wire cannot be written to for now."""
        ...

    def ease(self, wire: Wire) -> None:
        """Be told that it can be again."""
        ...

    def count(self, wire: Wire, size: int) -> None:
        """Be told how much a wire brought, once it is taken."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether some wire cannot be written to."""
        ...


class Wire(asyncio.Protocol):
    """Stands in for the stream that a connection was opened with, which keeps being told of its end."""

    def __init__(self, taker: Taker, connection: Connection, transport: asyncio.WriteTransport) -> None:
        self._taker = taker
        self._connection = connection
        self._transport = cast("asyncio.Transport", transport)
        self._stream = cast("asyncio.Protocol", transport.get_protocol())
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.muted = False

    def attach(self, reader: asyncio.StreamReader) -> asyncio.Future[None]:
        """Take the connection over, with what its stream has read already; return what is done when it ends."""
        self._transport.set_protocol(self)
        buffered = bytes(reader._buffer)  # type: ignore[attr-defined]  # noqa: SLF001  no other way that never waits
        if buffered:
            self.data_received(buffered)
        if reader.exception() is not None or reader._eof:  # type: ignore[attr-defined]  # noqa: SLF001
            self._end()
        if self._transport.get_write_buffer_size() > self._transport.get_write_buffer_limits()[1]:
            self._taker.press(self)  # the stream was told so, and nobody else will be
        if self._taker.is_full:
            self.pause()
        else:
            self.resume()  # a stream stops reading when it has read much
        return self._ended

    def data_received(self, data: bytes) -> None:
        """Return the layers what came."""
        state = self._connection.state
        if not self.muted and (state is ConnectionState.OPEN or state & ConnectionState.CAN_READ):
            self._taker.take(events.DataReceived(self._connection, data))
            self._taker.count(self, len(data))

    def eof_received(self) -> bool:
        """Note that no more comes; it may still be written to."""
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self._end()
        self._taker.ease(self)
        self._stream.connection_lost(exc)

    def pause_writing(self) -> None:
        """Have nothing more read while this is full."""
        self._stream.pause_writing()
        self._taker.press(self)

    def resume_writing(self) -> None:
        """Have things read again."""
        self._stream.resume_writing()
        self._taker.ease(self)

    def pause(self) -> None:
        """Read nothing for now."""
        if self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self._transport.is_reading() and not self._transport.is_closing():
            self._transport.resume_reading()

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
