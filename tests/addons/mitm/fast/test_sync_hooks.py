"""A layer goes on where a hook is done at once, waits where it is not, and takes everything in its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import Layer

from addons.mitm.fast.sync_hooks import SyncHooks, complete_now
from tests.support.tls_fixture import context

if TYPE_CHECKING:
    from mitmproxy.proxy.layer import CommandGenerator


@dataclass
class SyncTestHook(commands.StartHook):
    number: int


class Counting(Layer):
    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.did: list[str] = []

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        assert isinstance(event, events.DataReceived)
        for number in event.data:
            self.did.append(f"ask {number}")
            yield SyncTestHook(number)
            self.did.append(f"told {number}")
            yield commands.Log(str(number))


class SyncCounting(SyncHooks, Counting):
    pass


@pytest.mark.parametrize("waits", [(), (1,), (2, 3), (1, 2, 3, 4)])
def test_the_order_is_mitmproxys_own_whichever_hooks_wait(waits):
    did = []
    for kind in (Counting, SyncCounting):
        layer = kind(context())
        queue = [events.DataReceived(layer.context.client, piece) for piece in (b"\1\2", b"\3", b"\4")]
        waiting = []
        told = 0
        while queue or waiting:
            event = queue.pop(0) if queue else waiting.pop(0)
            for command in layer.handle_event(event):
                if isinstance(command, SyncTestHook):
                    if command.number in waits:
                        waiting.append(events.HookCompleted(command))
                    elif not complete_now(command):
                        queue.insert(0, events.HookCompleted(command))
                        told += 1
        did.append(layer.did)
        assert not layer._paused_event_queue
        assert told == (4 - len(waits) if kind is Counting else 0)
    assert did[0] == did[1]
    assert len(did[0]) == 8
