"""What a store of standing approvals promises, on SQLite and on Postgres alike."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

from proxy.core.approvals import StandingApproval
from proxy.store.proposal_store import Proposals
from tests.support.store_fixtures import patient_store

NOW = 1_763_000_000.25
WHOSE = ("bank.example", "pay", "bot", "payments")


def standing(name: str = "s1", **changes: Any) -> StandingApproval:
    server, tool, principal, rule = WHOSE
    plain = StandingApproval(
        standing_id=name,
        proposal_id="p1",
        server=server,
        tool=tool,
        principal=principal,
        rule=rule,
        vary=("amount", "odd \0 name"),
        like_key="k" * 64,
        arguments={"amount": 10, "note": "\0"},
        operator="olga",
        reason="payday \0",
        created_at=NOW,
        expires_at=NOW + 60,
        granted=3,
        remaining=3,
    )
    return dataclasses.replace(plain, **changes)


async def test_what_is_added_is_found_as_it_was(store: Proposals) -> None:
    await store.standing.add(standing())
    await store.standing.add(standing())
    assert await store.standing.find("s1") == standing()
    assert await store.standing.find("\0") is None
    await store.standing.add(standing("s2", created_at=NOW + 1))
    assert [one.standing_id for one in await store.standing.newest()] == ["s2", "s1"]
    assert [one.standing_id for one in await store.standing.newest(1)] == ["s2"]


async def test_it_holds_for_its_own_calls_alone(store: Proposals) -> None:
    await store.standing.add(standing())
    assert await store.standing.live(*WHOSE, NOW) == [standing()]
    for place in range(4):
        other = [*WHOSE]
        other[place] = "another"
        assert await store.standing.live(*other, NOW) == []


async def test_the_one_that_ends_first_comes_first(store: Proposals) -> None:
    await store.standing.add(standing("late", expires_at=NOW + 90))
    await store.standing.add(standing("soon", expires_at=NOW + 30))
    assert [one.standing_id for one in await store.standing.live(*WHOSE, NOW)] == ["soon", "late"]


async def test_it_is_used_as_often_as_granted_among_many_and_no_more(
    store: Proposals, where: tuple[str | None, Path]
) -> None:
    await store.standing.add(standing(granted=7, remaining=7))
    other = patient_store(*where)
    try:
        used = await asyncio.gather(
            *((store if n % 2 else other).standing.use("s1", f"call-{n}", NOW) for n in range(64))
        )
    finally:
        await other.close()
    assert sorted(one.remaining for one in used if one is not None) == list(range(7))
    assert await store.standing.live(*WHOSE, NOW) == []


async def test_it_ends_with_its_time(store: Proposals) -> None:
    await store.standing.add(standing())
    assert await store.standing.use("s1", "c", NOW + 60) is None
    assert await store.standing.live(*WHOSE, NOW + 60) == []
    assert await store.standing.use("s1", "c", NOW + 59.9) is not None


async def test_it_ends_when_it_is_revoked_which_is_once(store: Proposals) -> None:
    await store.standing.add(standing())
    revoked = await store.standing.revoke("s1", "bob", NOW + 5)
    assert revoked == standing(revoked_by="bob", revoked_at=NOW + 5)
    assert await store.standing.revoke("s1", "eve", NOW + 6) is None
    assert await store.standing.revoke("gone", "eve", NOW + 6) is None
    assert await store.standing.use("s1", "c", NOW + 6) is None
    assert await store.standing.live(*WHOSE, NOW + 6) == []


async def test_what_is_long_over_is_swept(store: Proposals) -> None:
    await store.standing.add(standing())
    assert await store.sweep(NOW + 100, 50) == 0
    assert await store.sweep(NOW + 200, 50) == 1
    assert await store.standing.newest() == []
