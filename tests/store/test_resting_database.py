"""One connection for all that ask all the time, from any thread and event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from proxy.errors import StoreUnavailableError
from proxy.store.postgres import PostgresDatabase
from proxy.store.resting_database import RestingDatabase


@pytest.fixture
def resting(database_url: str) -> Iterator[RestingDatabase]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    made = RestingDatabase(loop)
    real = PostgresDatabase(database_url, connections=2)

    async def begin() -> None:
        made.open(real)

    asyncio.run_coroutine_threadsafe(begin(), loop).result()
    yield made
    asyncio.run_coroutine_threadsafe(real.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def test_many_who_ask_share_one_connection(resting: RestingDatabase) -> None:
    asked = [resting.fetch("SELECT pg_backend_pid(), pg_sleep(0.005)") for _ in range(20)]
    assert len({rows[0][0] for rows in await asyncio.gather(*asked)}) == 1
    other = asyncio.to_thread(lambda: asyncio.run(resting.execute("SELECT 5")))
    assert [tuple(row) for row in await other] == [(5,)]
    await resting.check()
    assert [tuple(row) for row in await resting.transaction(lambda inside: inside.fetch("SELECT 6"))] == [(6,)]


async def test_what_fails_is_told(resting: RestingDatabase) -> None:
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        await resting.fetch("SELECT * FROM nowhere")


async def test_one_that_is_closed_is_away() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await RestingDatabase(loop).fetch("SELECT 1")


async def test_whoever_stops_asking_is_cancelled(resting: RestingDatabase) -> None:
    task = asyncio.create_task(resting.fetch("SELECT pg_sleep(60)"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [tuple(row) for row in await resting.fetch("SELECT 1")] == [(1,)]
