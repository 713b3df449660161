"""Who hears of what is looked up once, told in order, and a hook that raises ends its flow."""

from __future__ import annotations

import pytest
from mitmproxy import exceptions, options
from mitmproxy.connection import Client, Server
from mitmproxy.http import HTTPFlow
from mitmproxy.proxy.layers.http import HttpRequestHook
from mitmproxy.proxy.layers.websocket import WebsocketMessageHook
from mitmproxy.websocket import WebSocketData, WebSocketMessage
from wsproto.frame_protocol import Opcode

from addons.mitm.addon_manager import Embedded


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


async def told(flow: HTTPFlow, *kinds: type[First]) -> list[str]:
    heard: list[str] = []
    master = Embedded(options.Options())
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
async def test_everybody_is_told_in_order_until_one_halts(flow, kinds, heard):
    assert await told(flow, *kinds) == heard
    assert flow.error is None


@pytest.mark.parametrize("kinds", [(Raising, Third), (RaisingLater, Third), (Second, Raising, Third)])
async def test_a_hook_that_raises_ends_its_flow_and_the_others_are_told(flow, kinds):
    assert (await told(flow, *kinds))[-1] == "third"
    assert flow.error is not None


async def test_a_message_of_a_websocket_is_dropped_where_a_hook_raises(flow):
    class Broken:
        async def websocket_message(self, flow: HTTPFlow) -> None:
            raise ValueError("broken")

    before, last = (WebSocketMessage(Opcode.TEXT, from_client=True, content=b"{}") for _ in range(2))
    flow.websocket = WebSocketData(messages=[before, last])
    master = Embedded(options.Options())
    master.addons.add(Broken())
    await master.addons.handle_lifecycle(WebsocketMessageHook(flow))
    assert (before.dropped, last.dropped) == (False, True)
    assert flow.error is not None


async def test_addons_that_come_and_go_are_noticed(flow):
    heard: list[str] = []
    master, first, third = Embedded(options.Options()), First(heard), Third(heard)
    master.addons.add(first)
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    master.addons.add(third)
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    master.addons.remove(first)
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    master.addons.clear()
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    assert heard == ["first", "first", "third", "third"]
