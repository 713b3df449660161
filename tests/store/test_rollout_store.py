"""What a store of the roll-out promises, on SQLite and on Postgres alike; and who may write to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.core.rollout import ReplicaState, SideCounts, SignedStep
from proxy.errors import StoreUnavailableError
from proxy.rollout.bundle import digest_of
from proxy.store.open_store import open_database
from proxy.store.postgres import PostgresDatabase, connect
from proxy.store.rollout_store import CHANNEL, Rollout
from tests.support.postgres import Postgres
from tests.support.timeouts import PATIENCE

BUNDLES = {digest_of("the policy"): "the policy"}
DIGEST = next(iter(BUNDLES))


def row(number: int, body: str = "body") -> SignedStep:
    return SignedStep(number, body, "key", "signature")


@pytest.fixture
async def rollout(where: tuple[str | None, Path]) -> AsyncIterator[Rollout]:
    database = open_database(*where)
    yield Rollout(database)
    await database.close()


async def test_steps_are_kept_in_order(rollout: Rollout) -> None:
    assert (await rollout.newest(0, 5), await rollout.step(1), await rollout.bundle(DIGEST)) == ([], None, None)
    for number in (1, 2, 5):
        assert await rollout.add(row(number), BUNDLES)
    assert [one.number for one in await rollout.newest(0, 2)] == [5, 2]
    assert [one.number for one in await rollout.newest(1, 9)] == [5, 2]
    assert await rollout.step(2) == row(2)
    assert await rollout.bundle(DIGEST) == "the policy"


async def test_a_number_is_given_once_however_many_ask(rollout: Rollout) -> None:
    tries = [rollout.add(row(1, f"body {n}"), {}) for n in range(8)]
    assert sorted(await asyncio.gather(*tries)) == [False] * 7 + [True]
    assert len(await rollout.newest(0, 9)) == 1


async def test_a_canary_is_ended_once(rollout: Rollout) -> None:
    await rollout.add(row(3), {})
    assert (await rollout.returned(3), await rollout.returns(0)) == (None, {})
    assert await rollout.give_up(3, "r \0", "why")
    assert not await rollout.give_up(3, "other", "again")
    assert (await rollout.returned(3), await rollout.returns(3), await rollout.returns(4)) == ("why", {3: "why"}, {})


async def test_counts_of_all_replicas_add_up_within_the_time(rollout: Rollout) -> None:
    assert await rollout.counts(1, 300) == {}
    for replica in ("a", "b"):
        for _ in range(2):
            await rollout.count(1, replica, {"stable": SideCounts(10, 1, 2), "canary": SideCounts(5, 5, 0)})
    assert await rollout.counts(1, 300) == {"stable": SideCounts(40, 4, 8), "canary": SideCounts(20, 20, 0)}
    assert await rollout.counts(2, 300) == {}
    assert await rollout.counts(1, -60) == {}  # of a time that is yet to come


async def test_a_replica_says_what_is_in_force_there(rollout: Rollout) -> None:
    await rollout.report(ReplicaState("b", 1, "v1"))
    await rollout.report(ReplicaState("a", 2, "v2", "why \0 not"))
    await rollout.report(ReplicaState("b", 2, "v2"))
    found = await rollout.replicas(60)
    assert [(one.replica, one.number, one.version, one.problem) for one in found] == [
        ("a", 2, "v2", "why \0 not"),
        ("b", 2, "v2", None),
    ]
    assert await rollout.replicas(-60) == []


async def test_nothing_that_was_pushed_is_changed(rollout: Rollout) -> None:
    await rollout.add(row(1), BUNDLES)
    for sql in (
        "UPDATE policy_steps SET body = 'x'",
        "DELETE FROM policy_steps",
        "UPDATE policy_bundles SET content = 'x'",
        "DELETE FROM policy_bundles",
    ):
        with pytest.raises(StoreUnavailableError, match="never"):
            await rollout._database.execute(sql)
    assert await rollout.step(1) == row(1)


async def test_postgres_tells_of_steps_and_returns(database_url: str) -> None:
    database = PostgresDatabase(database_url)
    rollout, told = Rollout(database), asyncio.Queue[str]()
    listening = await connect(database_url)
    await listening.add_listener(CHANNEL, lambda *said: told.put_nowait(str(said[-1])))
    async with asyncio.timeout(PATIENCE):
        await rollout.add(row(7), {})
        assert await told.get() == "7"
        await rollout.give_up(7, "r", "why")
        assert await told.get() == "7"
    await listening.close()
    await database.close()


async def test_postgres_takes_no_bundle_under_another_name(database_url: str) -> None:
    database = PostgresDatabase(database_url)
    with pytest.raises(StoreUnavailableError):
        await Rollout(database).add(row(1), {DIGEST: "another policy"})
    assert await Rollout(database).newest(0, 1) == []
    await database.close()


async def test_a_proxys_role_cannot_publish_and_a_publishers_can(postgres: Postgres, database_url: str) -> None:
    """The credentials of a proxy that was taken over are no way to another policy."""
    name = database_url.split("@/")[1].split("?", maxsplit=1)[0]
    for login, role in (("pushes", "interlock_publisher"), ("proxies", "interlock_writer")):
        exists = "SELECT 1 FROM pg_roles WHERE rolname = "
        if not postgres.psql(f"{exists}'{login}'"):
            postgres.psql(f"CREATE ROLE {login} LOGIN IN ROLE {role}")
    publishes, proxies = (PostgresDatabase(postgres.url(name, user)) for user in ("pushes", "proxies"))
    assert await Rollout(publishes).add(row(1), BUNDLES)
    ours = Rollout(proxies)
    with pytest.raises(StoreUnavailableError, match="permission denied"):
        await ours.add(row(2), {})
    for sql in (
        f"INSERT INTO policy_bundles VALUES ('{DIGEST}', 'the policy')",
        "UPDATE policy_steps SET body = 'x'",
        "DELETE FROM policy_steps",
        "TRUNCATE policy_steps CASCADE",
        "ALTER TABLE policy_steps DISABLE TRIGGER ALL",
        "DELETE FROM policy_returns",
        "UPDATE policy_returns SET reason = 'x'",
    ):
        with pytest.raises(StoreUnavailableError, match=r"permission denied|must be owner"):
            await proxies.execute(sql)
    # What a proxy has to do, it can.
    assert await ours.step(1) == row(1)
    assert await ours.bundle(DIGEST) == "the policy"
    await ours.report(ReplicaState("a", 1, "v1"))
    await ours.report(ReplicaState("a", 2, "v1"))
    await ours.count(1, "a", {"stable": SideCounts(1)})
    await ours.count(1, "a", {"stable": SideCounts(1)})
    assert (await ours.counts(1, 60))["stable"] == SideCounts(2)
    assert await ours.give_up(1, "a", "why")
    with pytest.raises(StoreUnavailableError, match="permission denied"):
        await Rollout(publishes).give_up(1, "a", "why")
    for database in (publishes, proxies):
        await database.close()
