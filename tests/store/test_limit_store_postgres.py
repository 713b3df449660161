"""What a store of limits promises, on SQLite and on Postgres alike, and that Postgres is exact among replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.core.limits import LimitStore
from proxy.errors import StoreUnavailableError
from proxy.store.limit_store_postgres import PostgresLimits
from proxy.store.limit_store_sqlite import SqliteLimits
from proxy.store.open_store import open_database
from proxy.store.postgres import PostgresDatabase, connect
from tests.support.limit_fixture import HOUR, charge

BIG = 10**40


@pytest.fixture
async def limits(where: tuple[str | None, Path]) -> AsyncIterator[LimitStore]:
    url, folder = where
    database = open_database(url, folder)
    store: LimitStore = PostgresLimits(database, database) if url else SqliteLimits(folder / "limits.db")
    yield store
    await store.close()
    await database.close()


async def test_there_is_room_for_as_many_as_the_limit_says(limits: LimitStore) -> None:
    for number in range(3):
        assert await limits.reserve(f"c{number}", [charge()]) == []
    (exceeded,) = await limits.reserve("c3", [charge()])
    assert exceeded.used == 3
    assert exceeded.retry_after is not None
    assert 0 < exceeded.retry_after <= HOUR
    assert await limits.reserve("other", [charge("another")]) == []


async def test_a_call_is_charged_to_all_of_its_limits_or_to_none(limits: LimitStore) -> None:
    assert await limits.reserve("c0", [charge("b", most=1)]) == []
    (exceeded,) = await limits.reserve("c1", [charge("a", most=1), charge("b", most=1)])
    assert exceeded.charge.limit == "b"
    assert await limits.look([charge("a", most=1)]) == []


async def test_what_only_records_never_stops_a_call_and_counts_it(limits: LimitStore) -> None:
    lax = charge(most=1, blocks=False)
    assert await limits.reserve("c0", [lax]) == []
    (exceeded,) = await limits.reserve("c1", [lax])
    assert exceeded.used == 1
    assert [one.used for one in await limits.look([charge(most=1)])] == [2]


async def test_to_look_charges_nothing(limits: LimitStore) -> None:
    for _ in range(5):
        assert await limits.look([charge(most=1)]) == []
    assert await limits.reserve("c0", [charge(most=1)]) == []
    assert len(await limits.look([charge(most=1)])) == 1


async def test_what_is_given_back_is_as_if_it_had_never_been(limits: LimitStore) -> None:
    for number in range(3):
        await limits.reserve(f"c{number}", [charge(amount=10, most=30)])
    await limits.give_back("c1", [charge(amount=10, most=30)])
    await limits.give_back("c1", [charge(amount=10, most=30)])
    assert await limits.reserve("c3", [charge(amount=11, most=30)]) != []
    assert await limits.reserve("c3", [charge(amount=10, most=30)]) == []
    assert await limits.reserve("c4", [charge(amount=1, most=30)]) != []


async def test_amounts_of_any_size_add_up_exactly(limits: LimitStore) -> None:
    assert await limits.reserve("c0", [charge(amount=BIG - 1, most=BIG)]) == []
    assert await limits.reserve("c1", [charge(amount=1, most=BIG)]) == []
    (exceeded,) = await limits.reserve("c2", [charge(amount=1, most=BIG)])
    assert exceeded.used == BIG
    (never,) = await limits.reserve("c3", [charge(amount=BIG + 1, most=BIG)])
    assert never.retry_after is None


async def test_places_are_taken_until_they_are_left(limits: LimitStore) -> None:
    place = charge("few", most=2, seconds=0)
    assert await limits.reserve("c0", [place]) == []
    assert await limits.reserve("c1", [place]) == []
    assert len(await limits.reserve("c2", [place])) == 1
    await limits.maintain()
    assert len(await limits.look([place])) == 1
    await limits.release("c0", [place])
    assert await limits.reserve("c3", [place]) == []
    await limits.give_back("c3", [place])
    assert await limits.look([place]) == []


async def test_usage_names_each_budget_of_a_limit(limits: LimitStore) -> None:
    await limits.reserve("c0", [charge(amount=2, most=9), charge("mail2"), charge("few", seconds=0)])
    await limits.reserve("c1", [charge(amount=3, most=9)])
    found = await limits.usage([('["mail",', HOUR), ('["few",', 0)])
    assert [(one.budget, one.used, one.calls) for one in found] == [
        ('["mail", "count", "agent=bot"]', 5, 2),
        ('["few", "concurrency", "agent=bot"]', 1, 1),
    ]


async def test_64_callers_at_once_on_two_replicas_are_never_one_too_many(database_url: str) -> None:
    replicas = [PostgresDatabase(database_url) for _ in range(2)]
    stores = [PostgresLimits(database, database) for database in replicas]
    limit, place = charge(most=20), charge("few", most=5, seconds=0)
    calls = [stores[n % 2].reserve(f"c{n}", [limit]) for n in range(64)]
    calls += [stores[n % 2].reserve(f"p{n}", [place]) for n in range(64)]
    answers = await asyncio.gather(*calls)
    assert sum(not refused for refused in answers[:64]) == 20
    assert sum(not refused for refused in answers[64:]) == 5
    for database in replicas:
        await database.close()


async def test_limits_in_any_order_wait_for_each_other_without_a_deadlock(database_url: str) -> None:
    database = PostgresDatabase(database_url)
    store = PostgresLimits(database, database)
    pair = [charge("a", most=1000), charge("b", most=1000)]
    answers = await asyncio.gather(*(store.reserve(f"c{n}", pair[:: 1 if n % 2 else -1]) for n in range(60)))
    assert all(answer == [] for answer in answers)
    assert [one.used for one in await store.usage([('["a",', HOUR), ('["b",', HOUR)])] == [60, 60]
    await database.close()


async def test_the_window_slides_with_the_clock_of_the_database(database_url: str) -> None:
    database, link = PostgresDatabase(database_url), await connect(database_url)
    store = PostgresLimits(database, database)
    for number in range(3):
        await store.reserve(f"c{number}", [charge()])
    (exceeded,) = await store.look([charge()])
    assert exceeded.retry_after == pytest.approx(HOUR, abs=60)
    await link.execute("UPDATE limit_uses SET at = at - interval '1 hour', expires_at = now() WHERE call_id = 'c0'")
    assert await store.reserve("c3", [charge()]) == []
    assert len(await store.reserve("c4", [charge()])) == 1
    await store.maintain()
    assert await link.fetchval("SELECT count(*) FROM limit_uses") == 3
    await link.close()
    await database.close()


async def test_a_call_whose_connection_broke_is_charged_once(database_url: str) -> None:
    database = PostgresDatabase(database_url)
    store = PostgresLimits(database, database)
    assert await store.reserve("c0", [charge(most=1)]) == []
    assert await store.reserve("c0", [charge(most=1)]) == []
    assert len(await store.reserve("c1", [charge(most=1)])) == 1
    await database.close()


async def test_a_database_that_is_away_says_so(tmp_path: Path) -> None:
    store = PostgresLimits(PostgresDatabase(f"postgresql:///x?host={tmp_path}", timeout=0.5))
    with pytest.raises(StoreUnavailableError):
        await store.reserve("c0", [charge()])
