from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from proxy.fleet.open_state import Fleet, open_tokens
from proxy.fleet.start import start_fleet
from proxy.fleet.watcher import LIVE_SECONDS, Agreement, FleetWatcher, disagreement, keys_digest
from proxy.identity.token_file import AgentTokens
from proxy.store.fleet_store import CHANNEL, FleetStore, Replica
from proxy.store.open_store import open_database, open_listener
from tests.support.fleet_fixture import ENVIRON, FleetWorld
from tests.support.postgres import Postgres
from tests.support.timeouts import PATIENCE

OWN = Replica("own", "host", "1", 11, "policy", "keys", 1, 0.0, 0, None, started_at=100.0)
OLDER = replace(OWN, replica_id="older", host="first", started_at=50.0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def watching(world: FleetWorld, name: str, *, told: bool = True) -> AsyncIterator[FleetWatcher]:
    fleet = await asyncio.to_thread(start_fleet, world.settings(name), ENVIRON)
    assert isinstance(fleet, Fleet)
    database = open_database(world.url, world.settings(name).state_dir)
    watcher = FleetWatcher(fleet, FleetStore(database), lambda: replace(OWN, replica_id=fleet.replica_id))
    tasks = [asyncio.create_task(watcher.watch())]
    if told:
        listener = open_listener(world.url, {CHANNEL: watcher.tell})
        assert listener is not None
        tasks.append(asyncio.create_task(listener.run()))
    yield watcher
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await database.close()


@pytest.mark.parametrize("told", [True, False])
async def test_a_change_arrives_whether_the_database_tells_of_it_or_not(fleet: FleetWorld, told: bool) -> None:
    here = AgentTokens(fleet.settings("b").state_dir)
    async with watching(fleet, "b", told=told) as watcher:
        for name in ("one", "two"):
            await asyncio.to_thread(lambda name=name: open_tokens(AgentTokens, fleet.settings("a")).add(name))
            began = time.monotonic()
            await until(lambda name=name: name in here.names())
            assert time.monotonic() - began < 2.0
        await asyncio.to_thread(lambda: open_tokens(AgentTokens, fleet.settings("a")).revoke("one"))
        await until(lambda: list(here.names()) == ["two"])
        assert watcher.problem is None


async def test_a_replica_is_listed_and_problems_are_said(fleet: FleetWorld, postgres: Postgres) -> None:
    async with watching(fleet, "b") as watcher:
        await until(lambda: "host" in postgres.psql("SELECT host FROM fleet_replicas", fleet.url))
        postgres.psql("UPDATE shared_documents SET seal = 'x', generation = 2 WHERE name = 'list:agents'", fleet.url)
        await until(lambda: "was changed by somebody" in (watcher.problem or ""))
        postgres.psql("UPDATE fleet SET fleet_id = 'other', revision = revision + 1", fleet.url)
        await until(lambda: "has the fleet other" in (watcher.problem or ""))


async def test_a_key_that_is_read_at_the_start_alone_asks_for_another_start(fleet: FleetWorld) -> None:
    async with watching(fleet, "b") as watcher:
        owner = fleet.open("a")
        made = owner.state.seal_secret("mask", 2, b"n" * 32)
        assert await asyncio.to_thread(owner.bridge.run, lambda store: store.replace(made))
        await until(lambda: "new keys (mask); start this replica again" in (watcher.problem or ""))


def test_who_comes_later_has_to_agree_with_those_before() -> None:
    other = replace(OLDER, policy="another")
    assert disagreement(OWN, [OWN, OLDER]) is None
    assert "another policy (policy) than first (older: another)" in (disagreement(OWN, [OWN, other]) or "")
    assert "another keys" in (disagreement(OWN, [replace(OLDER, keys="k2")]) or "")
    assert disagreement(OWN, [OWN, other], same_policy=False) is None
    # The older one is not at fault, nor is one of a majority, and one that is gone says nothing.
    assert disagreement(other, [OWN, other]) is None
    assert disagreement(OWN, [other, replace(OLDER, replica_id="third")]) is None
    assert disagreement(OWN, [replace(other, silent=LIVE_SECONDS)]) is None


def test_a_replica_of_files_among_those_that_follow_pushed_policies_says_so_whichever_was_first() -> None:
    follows = replace(OWN, policy="v3-" + "0" * 64)
    for own in (replace(OLDER, policy="files"), replace(OWN, replica_id="newer", policy="files", started_at=9e9)):
        assert "set policy_source: pushed" in (disagreement(own, [follows]) or "")
        assert disagreement(own, [replace(follows, silent=LIVE_SECONDS)]) is None
        assert disagreement(follows, [own], same_policy=False) is None


def test_a_difference_counts_at_the_start_and_later_once_it_lasts() -> None:
    other = replace(OLDER, policy="another")
    agreement = Agreement(settle=20)
    agreement.look(OWN, [other], 0.0)
    assert agreement.problem is not None
    agreement.look(OWN, [OLDER], 1.0)
    assert agreement.problem is None
    for now, told in ((2.0, False), (21.0, False), (22.0, True)):
        agreement.look(OWN, [other], now)
        assert (agreement.problem is not None) is told


def test_the_same_keys_have_the_same_name_in_any_order() -> None:
    assert keys_digest({"a": "1", "b": "2"}) == keys_digest({"b": "2", "a": "1"}) != keys_digest({"a": "2", "b": "1"})
