"""The table of calls on Postgres: claims that end with their process, sealed calls, bounded facts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from proxy.store import replica_board as module
from proxy.store.postgres import PostgresDatabase, connect
from proxy.store.replica_board import ReplicaBoard
from tests.gate.test_in_flight_json import WHOLE
from tests.support.gate_fixture import CONTEXT

KEY = b"k" * 32


@pytest.fixture
async def boards(database_url: str) -> AsyncIterator[tuple[ReplicaBoard, ReplicaBoard]]:
    made = [ReplicaBoard(PostgresDatabase(database_url), f"owner-{n}", f"replica-{n}", KEY) for n in (1, 2)]
    yield made[0], made[1]
    for board in made:
        await board.close()


async def test_an_id_is_claimed_by_one_and_free_again_when_it_is_released_or_its_process_is_dead(
    boards: tuple[ReplicaBoard, ReplicaBoard], database_url: str
) -> None:
    first, second = boards
    assert await first.beat() == 0
    assert await second.beat() == 1
    assert await first.claim(CONTEXT, 1)
    assert not await second.claim(CONTEXT, 1)
    assert await second.claim(CONTEXT, "1")
    assert await second.claim(replace(CONTEXT, session="other"), 1)
    await second.release([module.claim_key(CONTEXT, 1)])
    assert not await second.claim(CONTEXT, 1), "only its owner lets go"
    await first.release([module.claim_key(CONTEXT, 1)])
    assert await second.claim(CONTEXT, 1)
    assert not await first.claim(CONTEXT, 1)
    connection = await connect(database_url, 5)
    await connection.execute("UPDATE call_owners SET seen = seen - interval '1 minute' WHERE owner = 'owner-2'")
    await connection.close()
    assert await first.beat() == 0
    assert await first.claim(CONTEXT, 1), "its process is not alive"


async def test_a_call_is_found_ended_once_and_its_times_are_of_this_machine(
    boards: tuple[ReplicaBoard, ReplicaBoard],
) -> None:
    first, second = boards
    await first.post(replace(WHOLE, started=5.0, forwarded=5.5, closed=False))
    assert not await second.claim(WHOLE.context, WHOLE.message.id or "")
    found = await second.find(WHOLE.context, "7")
    assert found is not None
    assert (found.decision, found.call, found.closed) == (WHOLE.decision, WHOLE.call, False)
    assert 0 <= time.perf_counter() - found.forwarded < 60
    assert found.forwarded - found.started == pytest.approx(0.5)
    assert [call.call_id for call in await second.of_session(WHOLE.context)] == [WHOLE.call_id]
    assert [await second.end(WHOLE.call_id), await first.end(WHOLE.call_id)] == [True, False]
    assert await first.ended([WHOLE.call_id, "none"]) == {WHOLE.call_id, "none"}
    again = await first.find(WHOLE.context, "7")
    assert again is not None
    assert again.closed, "it is there for a replay"


async def test_a_row_that_somebody_else_wrote_or_moved_is_no_call(
    boards: tuple[ReplicaBoard, ReplicaBoard], database_url: str
) -> None:
    first, second = boards
    await first.post(WHOLE)
    connection = await connect(database_url, 5)
    await connection.execute("UPDATE replica_calls SET session = 'another'")
    assert await second.find(replace(WHOLE.context, session="another"), "7") is None
    await connection.execute(
        "UPDATE replica_calls SET session = $1, body = replace(body, 'a', 'b')", WHOLE.context.session
    )
    assert await second.find(WHOLE.context, "7") is None
    await connection.close()
    stranger = ReplicaBoard(PostgresDatabase(database_url), "o", "r", b"other" * 8)
    await first.post(replace(WHOLE, call_id="c9"))
    assert await stranger.find(WHOLE.context, "7") is None
    await stranger.close()


async def test_facts_are_learnt_once_bounded_and_forgotten(
    boards: tuple[ReplicaBoard, ReplicaBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = boards
    monkeypatch.setattr(module, "MAX_OF_OWNER", 2)
    assert await first.learn("credential", "digest", "", "site-1") == "site-1"
    assert await second.learn("credential", "digest", "", "site-2") == "site-1"
    assert [await first.learn("mcp", "s", f"/{n}", "bot") for n in range(3)] == ["bot", "bot", None]
    assert await second.is_known("mcp", "s", "/1")
    assert not await second.is_known("mcp", "s", "/2")
    assert [fact[:3] for fact in await second.new_facts()] == [
        ("credential", "digest", ""),
        ("mcp", "s", "/0"),
        ("mcp", "s", "/1"),
    ]
    monkeypatch.setattr(module, "FACT_SECONDS", -1.0)
    monkeypatch.setattr(module, "ENDED_SECONDS", -1.0)
    await first.post(WHOLE, is_open=False)
    await first.sweep()
    assert not await second.is_known("mcp", "s", "/1")
    assert await second.find(WHOLE.context, "7") is None
