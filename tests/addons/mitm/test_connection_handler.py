"""A client connection: bounded while something is waited for, cut when the process ends, quiet about contents."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from mitmproxy import options
from mitmproxy.addons import proxyserver
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import HttpRequestHook
from mitmproxy.proxy.mode_specs import ProxyMode

from addons.mitm.addon_manager import InterlockMaster
from addons.mitm.connection_handler import UNREAD_BYTES, GuardedConnectionHandler
from addons.mitm.fast.connection_handler import FastConnectionHandler
from addons.mitm.fast.hook_table import HookTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

KINDS = [GuardedConnectionHandler, FastConnectionHandler]
PATIENCE = 10.0


class Collected:
    """A layer that keeps what comes, and starts a hook at the first event."""

    def __init__(self) -> None:
        self.received = 0
        self.ended = asyncio.Event()

    def handle_event(self, event: events.Event) -> Iterator[commands.Command]:
        if isinstance(event, events.DataReceived):
            if not self.received:
                yield HttpRequestHook(SimpleNamespace())  # type: ignore[arg-type]
            self.received += len(event.data)
        elif isinstance(event, events.ConnectionClosed):
            self.ended.set()


class Waiting:
    """An addon whose hook waits."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def request(self, _: Any) -> None:
        self.begun.set()
        await self.may_end.wait()


def handler_of(kind: type[GuardedConnectionHandler], reader: Any = None, writer: Any = None, *addons: object) -> Any:
    master = InterlockMaster(options.Options(), HookTable)
    master.addons.add(proxyserver.Proxyserver(), *addons)
    known = {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}
    fake = SimpleNamespace(get_extra_info=known.get)
    return kind(master, reader, writer or fake, master.options, ProxyMode.parse("regular"))


@contextlib.asynccontextmanager
async def connected(kind: type[GuardedConnectionHandler], *addons: object) -> AsyncIterator[tuple[Any, Any, Any]]:
    """Return a handler that reads a connection, its task, and the client's writer."""
    accepted: asyncio.Future[tuple[Any, Any]] = asyncio.get_running_loop().create_future()
    listening = await asyncio.start_server(lambda *both: accepted.set_result(both), "127.0.0.1", 0)
    far, near = await asyncio.open_connection(*listening.sockets[0].getsockname())
    handler = handler_of(kind, *await accepted, *addons)
    handler.layer = Collected()
    handler.transports[handler.client].handler = task = asyncio.create_task(handler.handle_connection(handler.client))
    try:
        yield handler, task, (far, near)
    finally:
        task.cancel("over")
        near.close()
        listening.close()
        await asyncio.wait([task])


async def settled(layer: Collected) -> int:
    """Return how much a layer got, once nothing more comes for a while."""
    before = -1
    while before != layer.received:
        before = layer.received
        await asyncio.sleep(0.2)
    return before


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_is_read_no_further_than_a_bound_while_a_hook_waits(kind: Any) -> None:
    addon = Waiting()
    async with connected(kind, addon) as (handler, _, (_, near)), asyncio.timeout(PATIENCE):
        sent = 16 * UNREAD_BYTES
        near.write(bytes(sent))
        near.write_eof()
        await addon.begun.wait()
        # What was under way to the layers when the bound was met still comes to them: one read at most.
        assert UNREAD_BYTES < await settled(handler.layer) <= UNREAD_BYTES + (512 << 10)
        addon.may_end.set()
        await handler.layer.ended.wait()
        assert handler.layer.received == sent


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("why", "told"), [((), False), (("timeout",), True)], ids=["process ends", "for a reason"])
async def test_layers_that_would_end_a_response_in_order_are_told_of_an_end_only_where_the_process_lives_on(
    kind: Any, why: tuple[str, ...], told: bool
) -> None:
    async with connected(kind) as (handler, task, (far, near)), asyncio.timeout(PATIENCE):
        near.write(b"x")
        while not handler.layer.received:
            await asyncio.sleep(0)
        task.cancel(*why)
        assert await far.read() == b""
        assert handler.layer.ended.is_set() is told


@pytest.mark.parametrize("kind", KINDS)
async def test_the_log_of_a_layer_that_fails_says_where_and_not_what_was_sent(kind: Any, caplog: Any) -> None:
    def fail(event: events.Event) -> None:
        raise AssertionError(f"got {event!r}")

    handler = handler_of(kind)
    handler.layer = SimpleNamespace(handle_event=fail)
    with caplog.at_level(logging.ERROR):
        await handler.server_event(events.DataReceived(handler.client, b"a secret"))
    assert "AssertionError" in caplog.text
    assert "in fail" in caplog.text
    assert "a secret" not in caplog.text
