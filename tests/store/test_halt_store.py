"""What a store of halts promises, on SQLite and on Postgres alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.core.halts import Halt
from proxy.errors import StoreUnavailableError
from proxy.store.halt_store import CHANNEL, Halts
from proxy.store.open_store import open_database, open_listener
from proxy.store.postgres import PostgresDatabase
from tests.support.timeouts import PATIENCE

ONE = Halt("h1", "why \0", "olga", 1_763_000_000.25, agent="bot \0", cut=True, origin="api")
TWO = Halt("h2", "all", "otto", 1_763_000_001.0)


@pytest.fixture
async def halts(where: tuple[str | None, Path]) -> AsyncIterator[Halts]:
    database = open_database(*where)
    yield Halts(database)
    await database.close()


async def test_what_is_added_is_read_as_it_was(halts: Halts) -> None:
    assert (await halts.read()).halts == ()
    made = await halts.add([ONE])
    assert made.halts == (ONE,)
    assert await halts.read() == made
    assert (await halts.add([ONE, TWO])).halts == (ONE, TWO)


async def test_every_change_raises_the_generation(halts: Halts) -> None:
    first = await halts.add([ONE])
    second = await halts.remove(["h1", "none"])
    assert (second.store_id, second.halts) == (first.store_id, ())
    assert second.generation > first.generation > 0


async def test_two_at_once_lose_nothing(halts: Halts) -> None:
    many = [Halt(f"h{n}", "x", "olga", float(n)) for n in range(20)]
    lists = await asyncio.gather(*(halts.add([one]) for one in many))
    assert len({made.generation for made in lists}) == 20
    assert len((await halts.read()).halts) == 20


async def test_postgres_tells_whoever_listens(database_url: str) -> None:
    database = PostgresDatabase(database_url)
    told: asyncio.Queue[None] = asyncio.Queue()
    listener = open_listener(database_url, {CHANNEL: lambda: told.put_nowait(None)})
    assert listener is not None
    listening = asyncio.create_task(listener.run())
    async with asyncio.timeout(PATIENCE):
        await told.get()  # it listens
        await Halts(database).add([ONE])
        await told.get()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await database.close()


async def test_a_database_that_is_away_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError):
        await Halts(PostgresDatabase(f"postgresql:///x?host={tmp_path}", timeout=0.5)).read()
