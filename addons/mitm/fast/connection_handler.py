"""One client's connections, without detours: bytes go straight from the socket into the layers.

mitmproxy has a task that reads each connection, a lock around the layers, and a task for each hook. Here a
socket's bytes are given to the layers where they arrive, hooks that need not wait are called where they are
asked for, and only what really waits is a task. What the layers are told, and in which order, stays the same.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import traceback
from typing import TYPE_CHECKING, Any, cast

from mitmproxy.connection import ConnectionState
from mitmproxy.flow import Flow
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler
from mitmproxy.proxy.server import ConnectionIO, TimeoutWatchdog

from addons.limits import Descend
from addons.mitm.fast.socket_protocol import Wire
from addons.mitm.fast.sync_hooks import done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from mitmproxy.connection import Connection
    from mitmproxy.proxy.layer import Layer

    from addons.mitm.addon_manager import HookTable

UNREAD_BYTES = 1 << 20
"""How much a connection may bring while a hook or another connection is waited for, before it is read no further."""


class Watchdog(TimeoutWatchdog):
    """mitmproxy's, disarmed without a generator: every call has a hook that waits."""

    def disarm(self) -> Watchdog:  # type: ignore[override]
        """Let no time run out until the block ends."""
        return self

    def __enter__(self) -> None:
        self.can_timeout.clear()
        self.blocker += 1

    def __exit__(self, *_: object) -> None:
        self.blocker -= 1
        if self.blocker == 0:
            self.register_activity()
            self.can_timeout.set()


class DirectHandler(ProxyConnectionHandler):
    """One client connection and the server connections it leads to."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.timeout_watchdog = Watchdog(self.timeout_watchdog.timeout, self.timeout_watchdog.callback)
        self._table = cast("HookTable", self.master.addons)
        self._waiting: collections.deque[events.Event] = collections.deque()
        self._busy = False
        self._inside = False
        self._starting: commands.StartHook | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._wires: dict[Wire, None] = {}
        self._full: set[Wire] = set()
        self._awaited = 0
        self._dialled: set[commands.OpenConnection] = set()
        self._unread: collections.Counter[Wire] = collections.Counter()

    async def server_event(self, event: events.Event) -> None:
        """Return the layers an event."""
        self.take(event)
        if isinstance(event, events.OpenConnectionCompleted):
            self._dialled.discard(event.command)
            self._catch_up()

    async def open_connection(self, command: commands.OpenConnection) -> None:
        """Open a connection and see it through to its end; until it is open, the layers wait."""
        self._dialled.add(command)
        try:
            await super().open_connection(command)
        finally:
            self._dialled.discard(command)
            self._catch_up()

    def take(self, event: events.Event) -> None:
        """Return the layers an event; one that comes while they are busy with another is for them to take next."""
        self._waiting.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                self._take(self._waiting.popleft())
        finally:
            self._busy = False

    def _take(self, event: events.Event) -> None:
        self.timeout_watchdog.register_activity()
        try:
            for command in self.layer.handle_event(event):
                self._carry_out(command)
        except Exception as error:  # noqa: BLE001  as in mitmproxy: a layer that fails takes no other connection with it
            # Where it failed, and not what it says: layers quote in it what was sent.
            place = "".join(traceback.format_tb(error.__traceback__))
            self.log(f"mitmproxy has crashed: {type(error).__name__}\n{place}", logging.ERROR)

    def _carry_out(self, command: commands.Command) -> None:
        if isinstance(command, commands.SendData):
            io = self.transports.get(command.connection)
            if io is not None:
                assert io.writer is not None
                if not io.writer.is_closing():
                    io.writer.write(command.data)
        elif isinstance(command, commands.StartHook):
            self._start(command)
        else:
            self._carry_out_rarer(command)

    def _carry_out_rarer(self, command: commands.Command) -> None:
        if isinstance(command, commands.OpenConnection):
            assert command.connection not in self.transports
            handler = self._begin(self.open_connection(command))
            self.transports.setdefault(command.connection, ConnectionIO(handler=handler))
        elif isinstance(command, Descend):
            self._descend(command.layer)
        elif isinstance(command, commands.RequestWakeup):
            self.wakeup_timer.add(self._begin(self.wakeup(command)))
        elif isinstance(command, commands.ConnectionCommand) and command.connection not in self.transports:
            pass  # it is closed already
        elif isinstance(command, commands.CloseTcpConnection):
            self.close_connection(command.connection, command.half_close and not self._inside)
        elif isinstance(command, commands.CloseConnection):
            self.close_connection(command.connection, half_close=False)
        elif isinstance(command, commands.Log):
            self.log(command.message, command.level)
        else:
            raise TypeError(f"unexpected command {command!r}")

    def _descend(self, layer: Layer) -> None:
        """Let a layer inside take what comes. The clocks that run are those of the layers left behind.

        Where connections of those are open, they stay: nobody else knows what to do at the end of one.
        """
        if self.transports.keys() != {self.client}:
            return
        self.layer = layer
        self._inside = True
        while self.wakeup_timer:
            self.wakeup_timer.pop().cancel()

    def _start(self, hook: commands.StartHook) -> None:
        waiting = self._told(hook)
        if waiting is not None:
            self._starting = hook
            self._begin(self._finish(hook, waiting))
            self._starting = None
        elif hook.blocking and not done(hook):
            self._waiting.append(events.HookCompleted(hook))

    async def _finish(self, hook: commands.StartHook, waiting: Awaitable[None]) -> None:
        self._awaited += 1
        try:
            with self.timeout_watchdog.disarm():
                await waiting
            if hook.blocking and not (self._starting is hook and done(hook)):
                self.take(events.HookCompleted(hook))
        finally:
            self._awaited -= 1
            self._catch_up()

    async def handle_hook(self, hook: commands.StartHook) -> None:
        """Tell the addons of something, and wait until they are done with it."""
        waiting = self._told(hook)
        if waiting is not None:
            with self.timeout_watchdog.disarm():
                await waiting

    def _told(self, hook: commands.StartHook) -> Awaitable[None] | None:
        """Tell the addons; return what is left to wait for."""
        args = self._table.args(hook)
        waiting, data = self._table.tell(hook, args), args[0]
        if isinstance(data, Flow) and data.intercepted:
            return _resumed(waiting, data)
        return waiting

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do `work` as far as it goes at once, and the rest as a task."""
        task = asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
        if not task.done():
            self._tasks.add(task)  # the loop itself keeps no hold of it
            task.add_done_callback(self._tasks.discard)
        return task

    async def handle_connection(self, connection: Connection) -> None:
        """See a connection through to its end: all it brings goes to the layers."""
        io = self.transports[connection]
        if not isinstance(io.reader, asyncio.StreamReader) or not isinstance(io.writer, asyncio.StreamWriter):
            await super().handle_connection(connection)
            return
        wire = Wire(self, connection, io.writer.transport)
        self._wires[wire] = None
        cancelled = await _until(wire.attach(io.reader))
        wire.muted = True
        if cancelled is not None and not cancelled.args:
            # Nobody said why: the process ends. The peer is cut off, and not told that the other side went away.
            io.writer.transport.abort()
            raise cancelled
        if cancelled is None:
            connection.state &= ~ConnectionState.CAN_READ  # a TCP connection can be half closed
        else:
            connection.state = ConnectionState.CLOSED
        self.take(events.ConnectionClosed(connection))
        if connection.state is ConnectionState.CAN_WRITE:
            cancelled = await _until(asyncio.get_running_loop().create_future())
        with contextlib.suppress(OSError):
            io.writer.close()
        self.transports.pop(connection)
        self._wires.pop(wire, None)
        self._unread.pop(wire, None)
        self.ease(wire)
        if cancelled:
            raise cancelled

    def press(self, wire: Wire) -> None:
        """Read nothing more while `wire` cannot be written to."""
        self._full.add(wire)
        for each in self._wires:
            each.pause()

    def ease(self, wire: Wire) -> None:
        """Read on once every wire can be written to again."""
        if wire in self._full:
            self._full.discard(wire)
            if not self._full:
                for each in self._wires:
                    if self._unread[each] <= UNREAD_BYTES:
                        each.resume()

    def count(self, wire: Wire, size: int) -> None:
        """Read no more of a wire that brings much while the layers wait for something: they would keep it all."""
        if self._awaited or self._dialled:
            self._unread[wire] += size
            if self._unread[wire] > UNREAD_BYTES:
                wire.pause()

    def _catch_up(self) -> None:
        """Read on where nothing is waited for, so that the layers have taken all that came."""
        if self._awaited or self._dialled or not self._unread:
            return
        wires = list(self._unread)
        self._unread.clear()
        for wire in wires:
            if not self._full:
                wire.resume()

    @property
    def is_full(self) -> bool:
        """Whether something cannot be written to."""
        return bool(self._full)


async def _until(end: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait for an end; return the cancellation where one came first."""
    try:
        await end
    except asyncio.CancelledError as cancelled:
        return cancelled
    return None


async def _resumed(waiting: Awaitable[None] | None, flow: Flow) -> None:
    if waiting is not None:
        await waiting
    await flow.wait_for_resume()
