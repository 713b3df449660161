"""Each state of a proposal is told once to each target, whatever fails, on SQLite and on Postgres alike."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.core.proposals import Proposal, State
from proxy.errors import StoreUnavailableError
from proxy.notify import notifier
from proxy.notify.notifier import BACK_OFF, CLAIM_SECONDS, KEEP_SECONDS, Notifier
from proxy.notify.targets import Target
from proxy.store.notice_store import Notices
from proxy.store.proposal_store import Proposals
from tests.notify.conftest import Taken
from tests.support.proposal_fixture import new_proposal
from tests.support.store_fixtures import patient_store

NOW = 1_763_000_000.25


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def telling(store: Proposals, hook: Taken, clock: Clock, *names: str) -> Notifier:
    target = Target(kind="webhook", url=f"http://127.0.0.1:{hook.port}/")
    targets = dict.fromkeys(names or ("ops",), target)
    return Notifier(Notices(store.database), targets, {}, lambda p: f"https://c.example/{p.proposal_id}", clock)


def waiting(name: str = "p1", **changes: Any) -> Proposal:
    return dataclasses.replace(new_proposal(name, arguments_hash=name, created_at=NOW, expires_at=NOW + 600), **changes)


def told(hook: Taken) -> list[tuple[str, str]]:
    return [(body["proposal_id"], body["state"]) for body in (json.loads(raw) for _, _, raw in hook.requests)]


async def test_what_waits_is_told_once_and_so_is_its_end(store: Proposals, hook: Taken, clock: Clock) -> None:
    teller = telling(store, hook, clock)
    await store.propose(waiting(), NOW)
    for _ in range(3):
        await teller.tell()
    assert told(hook) == [("p1", "pending")]
    await store.decide("p1", State.APPROVED, operator="ann", reason="", now=NOW + 1, expires_at=NOW + 600)
    for _ in range(3):
        await teller.tell()
    clock.now = NOW + 9999
    await store.sweep(clock.now, 99_999)
    await teller.tell()
    assert told(hook) == [("p1", "pending"), ("p1", "approved")]


async def test_what_nobody_decided_is_told_as_expired(store: Proposals, hook: Taken, clock: Clock) -> None:
    teller = telling(store, hook, clock)
    await store.propose(waiting(), NOW)
    await teller.tell()
    clock.now = NOW + 601
    for _ in range(2):
        await teller.tell()
    assert told(hook) == [("p1", "pending"), ("p1", "expired")]


async def test_what_ended_before_anybody_was_told_is_not_told(store: Proposals, hook: Taken, clock: Clock) -> None:
    await store.propose(waiting(), NOW)
    await store.decide("p1", State.REJECTED, operator="ann", reason="no", now=NOW + 1, expires_at=NOW + 600)
    await store.propose(waiting("p2", state=State.PROPOSED, approval="auto"), NOW)
    await store.propose(waiting("p3", state=State.BLOCKED, approval="auto"), NOW)
    await telling(store, hook, clock).tell()
    assert hook.requests == []


async def test_many_processes_send_each_notice_once(
    store: Proposals, where: tuple[str | None, Path], hook: Taken, clock: Clock
) -> None:
    for number in range(10):
        await store.propose(waiting(f"p{number}"), NOW)
    others = [patient_store(*where) for _ in range(3)]
    try:
        await asyncio.gather(*(telling(each, hook, clock, "ops", "chat").tell() for each in (store, *others)))
    finally:
        for each in others:
            await each.close()
    assert len(told(hook)) == 20
    assert all(told(hook).count(one) == 2 for one in told(hook))


async def test_what_a_target_does_not_take_is_tried_again_later_and_given_up_in_the_end(
    store: Proposals, hook: Taken, clock: Clock
) -> None:
    teller = telling(store, hook, clock)
    hook.answers = [500] * 99
    await store.propose(waiting(expires_at=NOW + 99_999), NOW)
    await teller.tell()
    await teller.tell()
    assert len(hook.requests) == 1
    for pause in BACK_OFF:
        clock.now += pause
        await teller.tell()
    assert len(hook.requests) == 1 + len(BACK_OFF)
    clock.now += CLAIM_SECONDS + BACK_OFF[-1]
    await teller.tell()
    assert len(hook.requests) == 1 + len(BACK_OFF)


async def test_a_second_try_that_is_taken_is_the_last(store: Proposals, hook: Taken, clock: Clock) -> None:
    teller = telling(store, hook, clock)
    hook.answers = [503]
    await store.propose(waiting(), NOW)
    await teller.tell()
    clock.now += BACK_OFF[0]
    assert await teller.tell() == 1
    clock.now += CLAIM_SECONDS
    assert await teller.tell() == 0
    assert len(hook.requests) == 2


async def test_what_a_process_claimed_and_did_not_send_another_sends_later(
    store: Proposals, hook: Taken, clock: Clock
) -> None:
    outbox = Notices(store.database)
    await outbox.add("ops", "p1", State.PENDING, {"proposal_id": "p1", "state": "pending"}, NOW)
    assert await outbox.claim(NOW, NOW + CLAIM_SECONDS) is not None
    teller = telling(store, hook, clock)
    assert await teller.tell() == 0
    clock.now += CLAIM_SECONDS
    assert await teller.tell() == 1


async def test_a_target_that_is_gone_from_the_file_is_given_up(store: Proposals, hook: Taken, clock: Clock) -> None:
    await Notices(store.database).add("old", "p1", State.PENDING, {}, NOW)
    assert await telling(store, hook, clock).tell() == 0
    assert await Notices(store.database).claim(NOW + CLAIM_SECONDS, NOW + 9999) is None


async def test_old_notices_are_swept(store: Proposals, hook: Taken, clock: Clock) -> None:
    await Notices(store.database).add("ops", "p1", State.PENDING, {}, NOW - KEEP_SECONDS - 1)
    await telling(store, hook, clock).tell()
    assert await store.database.fetch("SELECT 1 FROM notices") == []


async def test_a_store_that_fails_stops_nothing(store: Proposals, hook: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "POLL_SECONDS", 0.0)
    teller, tries = telling(store, hook, Clock()), 0
    enough = asyncio.Event()

    async def failing() -> int:
        nonlocal tries
        tries += 1
        if tries > 3:
            enough.set()
        raise (StoreUnavailableError("down"), RuntimeError("odd"))[tries % 2]

    monkeypatch.setattr(teller, "tell", failing)
    task = asyncio.create_task(teller.run())
    await asyncio.wait_for(enough.wait(), 30)
    assert not task.done()
    task.cancel()
