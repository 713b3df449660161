"""A connection without tasks: where hooks end at once no task is made, and events keep their order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mitmproxy.proxy import commands, events

from addons.mitm.fast.connection_handler import FastConnectionHandler
from tests.addons.mitm.test_connection_handler import handler_of


async def test_an_event_that_comes_while_layers_are_busy_is_handled_after_it() -> None:
    handler = handler_of(FastConnectionHandler)
    order: list[str] = []

    def handle(event: Any) -> Any:
        order.append(f"begin {event}")
        if event == "first":
            handler.receive("second")
        yield commands.Log("step")
        order.append(f"end {event}")

    handler.layer = SimpleNamespace(handle_event=handle)
    handler.receive("first")
    assert order == ["begin first", "end first", "begin second", "end second"]


async def test_a_layer_that_fails_leaves_the_next_event_its_turn() -> None:
    handler = handler_of(FastConnectionHandler)
    handled: list[events.Event] = []

    def handle(event: events.Event) -> Any:
        handled.append(event)
        raise AssertionError(event)

    handler.layer = SimpleNamespace(handle_event=handle)
    handler.receive(events.Start())
    handler.receive(events.Start())
    assert len(handled) == 2
