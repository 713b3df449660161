"""The table of hooks follows the addons; tests/addons/mitm/test_addon_manager.py has what both managers do."""

from __future__ import annotations

from mitmproxy import options
from mitmproxy.proxy.layers.http import HttpRequestHook

from addons.mitm.addon_manager import InterlockMaster
from addons.mitm.fast.hook_table import HookTable
from tests.addons.mitm.test_addon_manager import First, Second, Third, flow

__all__ = ["flow"]


async def test_addons_that_come_and_go_are_noticed(flow):
    heard: list[str] = []
    master, first, third = InterlockMaster(options.Options(), HookTable), First(heard), Third(heard)
    master.addons.add(first)
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    master.addons.add(third)
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    master.addons.remove(first)
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    master.addons.clear()
    await master.addons.handle_lifecycle(HttpRequestHook(flow))
    assert heard == ["first", "first", "third", "third"]


async def test_only_what_waits_is_left_to_await(flow):
    heard: list[str] = []
    master, hook = InterlockMaster(options.Options(), HookTable), HttpRequestHook(flow)
    table = master.addons
    assert isinstance(table, HookTable)
    table.add(First(heard))
    assert table.call(hook, table.args(hook)) is None
    table.add(Second(heard), Third(heard))
    waiting = table.call(hook, table.args(hook))
    assert waiting is not None
    assert heard == ["first", "first"]
    await waiting
    assert heard == ["first", "first", "second", "third"]
