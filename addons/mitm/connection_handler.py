"""One client connection with the server connections it leads to: bounded while a hook waits, quiet about contents.

Replaces mitmproxy's ProxyConnectionHandler for safety, in three points:

- mitmproxy reads on while a hook or a dial is awaited, and its layers queue all of it: a client could fill the
  memory behind one slow DNS lookup. Here a connection stops being read after UNREAD_BYTES.
- mitmproxy logs an exception of a layer with its message, and layers quote in it what was sent. Here the log has
  the type and the stack alone.
- When the process ends, mitmproxy's layers close each connection in order, so that a cut-off response whose end is
  that of its connection looks complete. Here the socket is closed under them.

Unnecessary once mitmproxy bounds `Layer._paused_event_queue`, and lets an embedder format crashes.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import sys
import traceback
from typing import Any

from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

UNREAD_BYTES = 1 << 20
"""How much a connection may bring while a hook or another connection is waited for, before it is read no further."""
READ_BYTES = 65_535


class GuardedConnectionHandler(ProxyConnectionHandler):
    """mitmproxy's handler with a bound on what is read while the layers wait."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._awaited_hooks = 0
        self._dials: set[commands.OpenConnection] = set()
        self._unread: collections.Counter[Connection] = collections.Counter()
        self._caught_up = asyncio.Event()

    async def server_event(self, event: events.Event) -> None:
        await super().server_event(event)
        self.note_dial_end(event)

    def note_dial_end(self, event: events.Event) -> None:
        """Resume reading where `event` says that the last connection waited for is open, or failed."""
        if isinstance(event, events.OpenConnectionCompleted):
            self._dials.discard(event.command)
            self.catch_up()

    async def open_connection(self, command: commands.OpenConnection) -> None:
        """Open a connection and handle it until it ends; until it is open, the layers wait."""
        self._dials.add(command)
        try:
            await super().open_connection(command)
        finally:
            self._dials.discard(command)
            self.catch_up()

    async def hook_task(self, hook: commands.StartHook) -> None:
        self._awaited_hooks += 1
        try:
            # Counted until the layers know: they may start the next hook, for what they queued meanwhile.
            await super().hook_task(hook)
        finally:
            self._awaited_hooks -= 1
            self.catch_up()

    async def handle_connection(self, connection: Connection) -> None:
        """Handle a connection until it ends: all that it brings goes to the layers."""
        io = self.transports[connection]
        cancelled = await self.read_to_end(connection)
        if cancelled is not None and not cancelled.args and isinstance(io.writer, asyncio.StreamWriter):
            # mitmproxy gives a reason with every cancellation; without one, the process is ending. The layers are not
            # told: they would send an end of TLS, by which a peer takes half a response for a whole one.
            io.writer.transport.abort()
            raise cancelled
        if cancelled is None:
            connection.state &= ~ConnectionState.CAN_READ  # TCP: the other direction may still be open
        else:
            connection.state = ConnectionState.CLOSED
        await self.server_event(events.ConnectionClosed(connection))
        if connection.state is ConnectionState.CAN_WRITE:
            cancelled = await cancellation_of(asyncio.get_running_loop().create_future())
        with contextlib.suppress(OSError):
            assert io.writer is not None
            io.writer.close()
        self.transports.pop(connection)
        self.forget(connection)
        if cancelled:
            raise cancelled

    async def read_to_end(self, connection: Connection) -> asyncio.CancelledError | None:
        """Pass what a connection brings to the layers until it ends; return the cancellation where one came first."""
        reader = self.transports[connection].reader
        assert reader is not None
        try:
            while data := await reader.read(READ_BYTES):
                await self.server_event(events.DataReceived(connection, data))
                await self.drain_writers()
                if self.count_unread(connection, len(data)):
                    self._caught_up.clear()
                    await self._caught_up.wait()
        except OSError:
            pass  # a reset is an end like any other
        except asyncio.CancelledError as cancelled:
            return cancelled
        return None

    def count_unread(self, connection: Connection, size: int) -> bool:
        """Count what came while the layers wait for something; return whether that is too much to read on."""
        if not self._awaited_hooks and not self._dials:
            return False
        self._unread[connection] += size
        return self._unread[connection] > UNREAD_BYTES

    def catch_up(self) -> None:
        """Resume reading where nothing is waited for any more: the layers have taken all that came."""
        if self._unread and not self._awaited_hooks and not self._dials:
            self._unread.clear()
            self.resume_reading()

    def resume_reading(self) -> None:
        self._caught_up.set()

    def forget(self, connection: Connection) -> None:
        """Drop what is stored about a connection that ended."""
        self._unread.pop(connection, None)

    def log(self, message: str, level: int = logging.INFO, exc_info: Any = None) -> None:
        """Log a message; of an exception its type and stack, since its text may quote what was sent."""
        if exc_info:
            error = sys.exc_info()[1] if exc_info is True else exc_info[1]
            assert error is not None
            message = "mitmproxy has crashed: {}\n{}".format(
                type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            )
        super().log(message, level)


async def cancellation_of(end: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait for `end`; return the cancellation where one came first."""
    try:
        await end
    except asyncio.CancelledError as cancelled:
        return cancelled
    return None
