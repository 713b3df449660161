"""The trail as the console reads it."""

from __future__ import annotations

from pathlib import Path

from proxy.console.trail import Trail
from proxy.core.event import Filter
from tests.support.audit_fixture import World, event


async def test_a_reader_sees_what_is_there_now_in_the_log_and_in_the_store(tmp_path: Path) -> None:
    trail, world = Trail(None, tmp_path), World(tmp_path, None)
    assert not trail.shared
    assert trail.store() is None
    try:
        async with trail.open() as reader:
            assert await reader.calls(Filter()) == []
        world.record(event(1))
        world.ship()
        world.record(event(2))
        async with trail.open() as reader:
            assert [call.call_id for call in await reader.calls(Filter())] == ["call-0002", "call-0001"]
        world.record(event(3))
        async with trail.open() as reader:
            assert [call.call_id for call in await reader.calls(Filter(), 1)] == ["call-0003"]
        assert trail.store() is trail.store()
    finally:
        await trail.close()
