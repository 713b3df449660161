"""What the commands of the roll-out share: waiting for replicas, and saying where a step is in force."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.commands.publishing import followed, show_replicas
from proxy.core.rollout import ReplicaState
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.rollout.fixtures import step
from tests.support.timeouts import PATIENCE


async def test_it_waits_until_every_replica_follows_or_says_why_not(tmp_path: Path) -> None:
    database = open_database(None, tmp_path)
    store = Rollout(database)
    await store.report(ReplicaState("a", 1, "v1"))
    await store.report(ReplicaState("b", 1, "v1", "not trusted"))
    assert [one.number for one in await followed(store, step(2), 0)] == [1, 1]
    waiting = asyncio.create_task(followed(store, step(2), PATIENCE))
    await asyncio.sleep(0)
    await store.report(ReplicaState("a", 2, "v2"))
    while not waiting.done():
        await store.report(ReplicaState("b", 1, "v1", "not trusted"))
        await asyncio.wait({waiting}, timeout=0.05)
    assert [one.number for one in await waiting] == [2, 1]
    await database.close()


def test_where_it_is_in_force_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_replicas(step(2), [])
    assert show_replicas(step(2), [ReplicaState("a", 2, "v2")])
    assert not show_replicas(step(2), [ReplicaState("a", 2, "v2"), ReplicaState("b", 1, "v1")])
    said = capsys.readouterr().err
    assert "No replica follows" in said
    assert "In force at 1 of 2 replicas." in said
    assert "b follows step 1, and has not said why" in said
