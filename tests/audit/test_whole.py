"""A store and the logs that fill it, asked as one; the commands' tests ask the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from proxy.audit import local_log_sql
from proxy.audit.event import Filter
from proxy.audit.local_log import LOG_FILE
from proxy.audit.whole import WholeEvents, open_whole
from tests.support.audit_fixture import TRAIL, World

Where = tuple[str | None, Path]


async def asked(whole: WholeEvents) -> Any:
    everything = Filter()
    return (
        await whole.calls(everything),
        [entry async for entry in whole.entries(everything)],
        await whole.count(everything),
        await whole.stats(everything),
        await whole.find("call-0001"),
    )


async def test_what_is_shipped_meanwhile_is_neither_missing_nor_doubled(where: Where) -> None:
    world = World(where[1], where[0])
    world.record(*TRAIL[:3])
    world.ship()
    world.record(*TRAIL[3:])
    async with open_whole(world.database_url, world.state_dir) as whole:
        before = await asked(whole)
        world.ship()
        assert await asked(whole) == before
    async with open_whole(world.database_url, world.state_dir) as whole:
        assert await asked(whole) == before
    assert before[2] == len(TRAIL)


async def test_what_is_in_the_store_and_not_yet_discarded_is_there_once(where: Where) -> None:
    world = World(where[1], where[0])
    world.record(*TRAIL)
    connection = local_log_sql.connect(world.state_dir / LOG_FILE, 1 << 30)
    state = local_log_sql.read_state(connection)
    assert state is not None
    world.write(local_log_sql.page(connection, state.head.writer, 0, 3))
    connection.close()
    async with open_whole(world.database_url, world.state_dir) as whole:
        assert await whole.count(Filter()) == (await whole.stats(Filter())).events == len(TRAIL)
        assert len(await whole.calls(Filter())) == 3
        assert len([entry async for entry in whole.entries(Filter())]) == len(TRAIL)


async def test_logs_are_enough_and_nothing_is_made_beside_them(tmp_path: Path) -> None:
    world = World(tmp_path, None)
    world.record(*TRAIL)
    async with open_whole(None, tmp_path) as whole:
        assert await whole.count(Filter()) == len(TRAIL)
        assert whole.store is None
    assert not (tmp_path / "store").exists()


async def test_nothing_at_all_is_nothing(tmp_path: Path) -> None:
    async with open_whole(None, tmp_path) as whole:
        assert (await whole.count(Filter()), await whole.calls(Filter()), await whole.find("x")) == (0, [], [])
        assert [entry async for entry in whole.entries(Filter())] == []
        assert (await whole.stats(Filter())).events == 0
