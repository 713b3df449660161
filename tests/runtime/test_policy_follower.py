"""Following the roll-out in one process: what is taken, what is not and why, counts, and the end of a canary."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model import AuditEvent
from proxy.core.rollout import SideCounts, SignedStep
from proxy.errors import StoreUnavailableError
from proxy.policy.reloader import LivePolicy, PolicyFiles
from proxy.rollout.canary import Bounds
from proxy.rollout.pushed_policy import PushedPolicy
from proxy.rollout.release_file import ReleaseFile
from proxy.rollout.step import Step, Version, sign
from proxy.runtime import policy_follower
from proxy.runtime.policy_follower import PolicyFollower, ReleaseReader, TallySink
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.rollout.fixtures import KEYS, OTHER, OTHER_KEY, SIGNER, bundle, canary, step
from tests.support.timeouts import PATIENCE

STABLE, NEW = bundle("shell"), bundle("rm")
BOUNDS = Bounds(seconds=300, calls=10, denials=0.1, errors=0.1)


class Sink:
    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)


class Replica:
    """One process that follows."""

    def __init__(self, folder: Path, store: Rollout) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "own.yaml").write_text("version: 1\ndefault: allow\n")
        self.file, self.store, self.sink = ReleaseFile(folder), store, Sink()
        pushed = PushedPolicy(self.file, lambda: KEYS, PolicyFiles(folder / "own.yaml"))
        self.live = LivePolicy(pushed)
        self.reader = ReleaseReader(store, self.file, lambda: KEYS, pushed)
        self.follower = PolicyFollower(
            self.reader, store, self.file, BOUNDS, self.sink, lambda: self.live.current().version, lambda: KEYS
        )

    async def look(self) -> str:
        await self.follower._read()
        self.live.reload_if_changed()
        return self.live.current().version

    async def tend(self) -> None:
        await self.follower._tend()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Rollout]:
    database = open_database(None, tmp_path / "store")
    yield Rollout(database)
    await database.close()


@pytest.fixture
def replica(tmp_path: Path, store: Rollout) -> Replica:
    return Replica(tmp_path / "one", store)


async def publish(store: Rollout, made: Step, signer: Any = SIGNER) -> None:
    assert await store.add(sign(made, *signer), {one.digest: one.text for one in (STABLE, NEW)})


def by_agent(number: int) -> Step:
    return step(number, STABLE, canary=canary(number, NEW, agents=("b*",)), action="canary")


async def test_a_step_is_taken_and_recorded_once(replica: Replica, store: Rollout) -> None:
    await publish(store, step(1, STABLE))
    assert await replica.look() == f"v1-{STABLE.digest}"
    assert await replica.look() == f"v1-{STABLE.digest}"
    assert [event.kind for event in replica.sink.events] == ["policy_step"]
    assert replica.sink.events[0].detail["operator"] == "olga"
    assert replica.follower.problem is None


@pytest.mark.parametrize(
    "bad",
    [
        sign(step(2, NEW), OTHER.key_id, OTHER_KEY),
        sign(step(2, NEW), SIGNER[0], OTHER_KEY),
        SignedStep(2, step(2, NEW).body(), SIGNER[0], ""),
        SignedStep(2, sign(step(1, NEW), *SIGNER).body, *(SIGNER[0], sign(step(1, NEW), *SIGNER).signature)),
        SignedStep(2, "{}", "", ""),
    ],
    ids=["another's key", "another's signature", "unsigned", "an older step again", "nothing"],
)
async def test_a_step_that_nobody_trusted_signed_is_not_taken_and_hides_none(
    bad: SignedStep, replica: Replica, store: Rollout
) -> None:
    await publish(store, step(1, STABLE))
    await replica.look()
    await store.add(bad, {NEW.digest: NEW.text})
    assert await replica.look() == f"v1-{STABLE.digest}"
    assert "policy step 2" in (replica.follower.problem or "")
    # A good one above it is taken, and so is a good one below it by a replica that has none yet.
    fresh = Replica(replica.file.path.parent / "fresh", store)
    assert await fresh.look() == f"v1-{STABLE.digest}"
    assert fresh.follower.problem is not None
    await publish(store, step(3, NEW))
    assert await replica.look() == f"v3-{NEW.digest}"
    assert replica.follower.problem is None


async def test_a_version_that_cannot_be_used_here_is_not_taken(replica: Replica, store: Rollout) -> None:
    await publish(store, step(1, STABLE))
    await replica.look()
    newer = bundle(more="a_section_of_tomorrow: 1\n")
    await store.add(sign(step(2, newer), *SIGNER), {newer.digest: newer.text})
    for _ in range(2):
        assert await replica.look() == f"v1-{STABLE.digest}"
        assert "version 2 cannot be used here" in (replica.follower.problem or "")
    await replica.tend()
    assert [one.problem is not None for one in await store.replicas(60)] == [True]
    await publish(store, step(3, NEW))
    assert (await replica.look(), replica.follower.problem) == (f"v3-{NEW.digest}", None)


async def test_a_policy_that_is_missing_or_another_is_not_taken(replica: Replica, store: Rollout) -> None:
    await store.add(sign(step(1, STABLE), *SIGNER), {})
    before = replica.live.current().version
    assert await replica.look() == before
    assert "not the one that was signed" in (replica.follower.problem or "")
    await store._database.execute(
        "INSERT INTO policy_bundles (digest, content) VALUES ($1, $2)", STABLE.digest, NEW.text
    )
    assert await replica.look() == before


async def test_a_store_that_lost_steps_changes_nothing_and_is_told(
    replica: Replica, store: Rollout, tmp_path: Path
) -> None:
    await publish(store, step(4, STABLE))
    await replica.look()
    database = open_database(None, tmp_path / "restored")
    restored = Rollout(database)
    again = Replica(tmp_path / "one", restored)
    assert await again.look() == f"v4-{STABLE.digest}"
    assert "step 4 is in force here" in (again.follower.problem or "")
    await publish(restored, step(2, NEW))
    assert await again.look() == f"v4-{STABLE.digest}"
    await publish(restored, step(4, NEW))
    assert await again.look() == f"v4-{STABLE.digest}"
    assert "another policy step 4" in (again.follower.problem or "")
    await publish(restored, step(5, NEW))
    assert (await again.look(), again.follower.problem) == (f"v5-{NEW.digest}", None)
    await database.close()


def decided(version: Version, decision: str = "allow") -> AuditEvent:
    return AuditEvent(event_id="e", kind="decided", time=0.0, policy_version=str(version), decision=decision)


async def test_a_jump_of_denials_ends_the_canary_everywhere(tmp_path: Path, store: Rollout) -> None:
    first, second = Replica(tmp_path / "one", store), Replica(tmp_path / "two", store)
    made = by_agent(1)
    await publish(store, made)
    assert made.canary is not None
    for replica in (first, second):
        assert "+" in await replica.look()
        await replica.tend()
        sink = TallySink(replica.sink, replica.follower.tally)
        for _ in range(6):
            await sink.record(decided(made.stable))
            sink.record_later(decided(made.canary.version, "deny"))
    await first.tend()
    assert await store.returned(1) is None  # six calls are too few
    await second.tend()
    assert "denials jumped: 100.0% of the canary's 12 calls" in (await store.returned(1) or "")
    for replica in (first, second):
        assert await replica.look() == str(made.stable)
        await replica.tend()
    kinds = [event.kind for replica in (first, second) for event in replica.sink.events]
    assert kinds.count("policy_returned") == 1
    # It does not come back with the database, nor with a restart.
    assert Replica(tmp_path / "one", store).live.current().version == str(made.stable)


async def test_a_canary_that_does_as_well_goes_on(replica: Replica, store: Rollout) -> None:
    made = by_agent(1)
    await publish(store, made)
    await replica.look()
    await replica.tend()
    assert made.canary is not None
    for decision in ("allow", "deny"):
        for version in (made.stable, made.canary.version):
            for _ in range(10):
                replica.follower.tally.count(decided(version, decision))
    await replica.tend()
    assert await store.counts(1, 60) == {"stable": SideCounts(20, 10), "canary": SideCounts(20, 10)}
    assert await store.returned(1) is None


async def test_one_that_does_not_lead_counts_and_leaves_the_rest_to_others(replica: Replica, store: Rollout) -> None:
    made = by_agent(1)
    await publish(store, made)
    await replica.look()
    replica.follower.leads = lambda: False
    await replica.tend()
    replica.follower.tally.count(decided(made.stable))
    await replica.tend()
    assert (await store.counts(1, 60), await store.replicas(60)) == ({"stable": SideCounts(1)}, [])


async def test_what_is_not_in_force_yet_is_not_reported(replica: Replica, store: Rollout) -> None:
    await replica.tend()
    await publish(store, step(3, STABLE))
    await replica.follower._read()
    await replica.tend()
    assert [one.number for one in await store.replicas(60)] == [0]
    replica.live.reload_if_changed()
    await replica.tend()
    assert [(one.number, one.version) for one in await store.replicas(60)] == [(3, f"v3-{STABLE.digest}")]


async def test_a_store_that_fails_ends_nothing_and_loses_no_count(
    replica: Replica, store: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_follower, "TICK_SECONDS", 0.01)
    made = by_agent(1)
    await publish(store, made)
    await replica.look()
    await replica.tend()
    tried = asyncio.Event()

    async def fail(*_: Any) -> None:
        tried.set()
        raise StoreUnavailableError("away")

    with monkeypatch.context() as away:
        away.setattr(store, "count", fail)
        away.setattr(store, "newest", fail)
        running = asyncio.gather(replica.follower.follow(0.01), replica.follower.tend())
        replica.follower.tally.count(decided(made.stable))
        async with asyncio.timeout(PATIENCE):
            await tried.wait()
        assert not running.done()
    async with asyncio.timeout(PATIENCE):
        while not await store.counts(1, 60):
            await asyncio.sleep(0.01)
    assert await store.counts(1, 60) == {"stable": SideCounts(1)}
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
