"""Publishing: what comes next is signed over what was verified, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.rollout import ReplicaState, SignedStep
from proxy.errors import PolicyError
from proxy.rollout.bundle import Bundle
from proxy.rollout.publisher import MOST_AHEAD, ConflictError, Publisher
from proxy.rollout.step import Step, Version, link_of, sign
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.rollout.fixtures import KEYS, OTHER, OTHER_KEY, SIGNER, bundle, step

ONE, TWO = bundle("shell"), bundle("rm")
WHO: dict[str, Any] = {"operator": "olga", "key": SIGNER}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Rollout]:
    database = open_database(None, tmp_path)
    yield Rollout(database)
    await database.close()


async def push(store: Rollout, made: Bundle, canary: str | None = None) -> Step:
    publisher = Publisher(store, KEYS)
    head = await publisher.head()
    version = Version(head.next_number, made.digest)
    if canary is None:
        return await publisher.publish(head, "push", version, bundle=made, **WHO)
    assert head.step is not None
    chosen = await publisher.canary(head, canary, version)
    return await publisher.publish(head, "canary", head.step.stable, canary=chosen, bundle=made, **WHO)


async def test_steps_follow_each_other(store: Rollout) -> None:
    first, second = await push(store, ONE), await push(store, TWO)
    assert (first.number, second.number) == (1, 2)
    assert second.previous == link_of(await store.step(1))
    publisher = Publisher(store, KEYS)
    assert [one.step for one in await publisher.history()] == [second, first]
    assert await publisher.version(1) == first.stable
    assert await publisher.bundle(first.stable) == ONE
    assert await publisher.previous(await publisher.head()) == first.stable


async def test_of_two_at_once_one_is_first_and_the_other_is_told(store: Rollout) -> None:
    publisher = Publisher(store, KEYS)
    head = await publisher.head()
    tries = [publisher.publish(head, "push", Version(1, one.digest), bundle=one, **WHO) for one in (ONE, TWO)]
    ends = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["ConflictError", "Step"]
    assert issubclass(ConflictError, PolicyError)
    assert len(await publisher.history()) == 1


async def test_a_forged_step_is_neither_the_head_nor_signed_anew(store: Rollout) -> None:
    """Else a canary over it would make an operator sign somebody else's policy as the stable one."""
    good = await push(store, ONE)
    await store.add(sign(step(2, TWO), OTHER.key_id, OTHER_KEY), {TWO.digest: TWO.text})
    await store.add(SignedStep(3, step(3, TWO).body(), SIGNER[0], ""), {})
    publisher = Publisher(store, KEYS)
    head = await publisher.head()
    assert (head.step, head.next_number) == (good, 4)
    past = await publisher.history()
    assert [one.problem is None for one in past] == [False, False, True]
    for number in (2, 3):
        with pytest.raises(PolicyError):
            await publisher.version(number)
    made = await push(store, TWO, "agents=b")
    assert made.stable == good.stable


async def test_a_store_that_was_restored_goes_on_above_its_replicas(store: Rollout) -> None:
    await push(store, ONE)
    await store.report(ReplicaState("a", 7, "v7"))
    await store.report(ReplicaState("liar", MOST_AHEAD * 5, "v"))
    assert (await Publisher(store, KEYS).head()).next_number == 8


async def test_a_share_of_the_replicas_is_at_least_one_and_never_all(store: Rollout) -> None:
    await push(store, ONE)
    with pytest.raises(PolicyError, match="needs two replicas"):
        await push(store, TWO, "10%")
    for number in range(10):
        await store.report(ReplicaState(f"r{number}", 1, "v1"))
    publisher = Publisher(store, KEYS)
    head = await publisher.head()
    sizes = {
        share: len((await publisher.canary(head, share, Version(2, TWO.digest))).replicas)
        for share in ("1%", "10%", "25%", "50%", "99%", "99.9%")
    }
    assert sizes == {"1%": 1, "10%": 1, "25%": 3, "50%": 5, "99%": 9, "99.9%": 9}
    made = await push(store, TWO, "10%")
    assert made.canary is not None
    assert (len(made.canary.replicas), made.stable.number, made.canary.version.number) == (1, 1, 2)


@pytest.mark.parametrize("wanted", ["", "0%", "100%", "10", "agents=", "agents=,", "-5%", "abc", "replicas=a"])
async def test_a_canary_that_means_nothing_is_refused(wanted: str, store: Rollout) -> None:
    await push(store, ONE)
    with pytest.raises(PolicyError, match="--canary"):
        await push(store, TWO, wanted)


async def test_a_canary_by_agent_may_not_change_what_holds_for_all(store: Rollout) -> None:
    await push(store, ONE)
    with pytest.raises(PolicyError, match="pins"):
        await push(store, bundle("rm", more="pins: {mode: enforce}\n"), "agents=b*")
    assert (await push(store, TWO, "agents=b*,c")).canary is not None
    assert (await Publisher(store, KEYS).head()).canary is not None
    await store.give_up(2, "a", "denials jumped")
    head = await Publisher(store, KEYS).head()
    assert head.canary is None
    assert head.past is not None
    assert head.past.returned == "denials jumped"


async def test_what_is_not_there_is_told(store: Rollout) -> None:
    publisher = Publisher(store, KEYS)
    with pytest.raises(PolicyError, match="no other version"):
        await publisher.previous(await publisher.head())
    with pytest.raises(PolicyError, match="no version 4"):
        await publisher.version(4)
    with pytest.raises(PolicyError, match="does not have the policy"):
        await publisher.bundle(Version(4, "a" * 64))
    await push(store, ONE)
    head = await publisher.head()
    assert head.step is not None
    await publisher.publish(head, "abort", head.step.stable, **WHO)
    with pytest.raises(PolicyError, match="brought no version"):
        await publisher.version(2)
