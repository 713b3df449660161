"""Hooks are called in the addons' order, and one that raises ends its flow, with the table of hooks and without."""

from __future__ import annotations

import pytest
from mitmproxy import exceptions, options
from mitmproxy.connection import Client, Server
from mitmproxy.http import HTTPFlow
from mitmproxy.proxy.layers.http import HttpRequestHook
from mitmproxy.proxy.layers.websocket import WebsocketMessageHook
from mitmproxy.websocket import WebSocketData, WebSocketMessage
from wsproto.frame_protocol import Opcode

from addons.mitm.addon_manager import FailClosedAddonManager, InterlockMaster
from addons.mitm.fast.hook_table import HookTable


class First:
    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    def request(self, flow: HTTPFlow) -> None:
        self.heard.append("first")


class Second(First):
    async def request(self, flow: HTTPFlow) -> None:
        self.heard.append("second")


class Third(First):
    def request(self, flow: HTTPFlow) -> None:
        self.heard.append("third")


class Raising(First):
    def request(self, flow: HTTPFlow) -> None:
        raise ValueError("broken")


class RaisingLater(First):
    async def request(self, flow: HTTPFlow) -> None:
        raise ValueError("broken")


class Halting(First):
    def request(self, flow: HTTPFlow) -> None:
        raise exceptions.AddonHalt


class Updated(First):
    def update(self, flows: list[HTTPFlow]) -> None:
        self.heard.append("updated")


@pytest.fixture
def flow() -> HTTPFlow:
    return HTTPFlow(Client(peername=("c", 1), sockname=("p", 2)), Server(address=("s", 3)), live=True)


@pytest.fixture(params=[FailClosedAddonManager, HookTable])
def manager(request: pytest.FixtureRequest) -> type[FailClosedAddonManager]:
    return request.param  # type: ignore[no-any-return]


async def called(manager: type[FailClosedAddonManager], flow: HTTPFlow, *kinds: type[First]) -> list[str]:
    heard: list[str] = []
    master = InterlockMaster(options.Options(), manager)
    master.addons.add(*(kind(heard) for kind in kinds))
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    return heard


@pytest.mark.parametrize(
    ("kinds", "heard"),
    [
        ((First, Second, Third), ["first", "second", "third"]),
        ((Second, First, Third), ["second", "first", "third"]),
        ((First, Halting, Third), ["first"]),
        ((Second, Halting, Third), ["second"]),
        ((Updated, Third), ["first", "third", "updated"]),
    ],
)
async def test_hooks_are_called_in_order_until_one_halts(manager, flow, kinds, heard):
    assert await called(manager, flow, *kinds) == heard
    assert flow.error is None


@pytest.mark.parametrize("kinds", [(Raising, Third), (RaisingLater, Third), (Second, Raising, Third)])
async def test_a_hook_that_raises_ends_its_flow_and_the_others_are_called(manager, flow, kinds):
    assert (await called(manager, flow, *kinds))[-1] == "third"
    assert flow.error is not None


async def test_a_message_of_a_websocket_is_dropped_where_a_hook_raises(manager, flow):
    class Broken:
        async def websocket_message(self, flow: HTTPFlow) -> None:
            raise ValueError("broken")

    before, last = (WebSocketMessage(Opcode.TEXT, from_client=True, content=b"{}") for _ in range(2))
    flow.websocket = WebSocketData(messages=[before, last])
    master = InterlockMaster(options.Options(), manager)
    master.addons.add(Broken())
    await master.addons.handle_lifecycle(WebsocketMessageHook(flow))
    assert (before.dropped, last.dropped) == (False, True)
    assert flow.error is not None
