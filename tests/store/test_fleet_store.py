from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.errors import StoreUnavailableError
from proxy.store.fleet_store import DocumentRow, FleetRow, FleetStore, PinsRow, Replica
from proxy.store.open_store import open_database

FLEET = FleetRow("f", "k", b"probe")
DOCUMENT = DocumentRow("list:agents", 1, "key", b"{}", b"seal")
PINS = PinsRow("hash", 1, 0, True, {"t:1": ["digest", False]}, b"{}", b"seal")
REPLICA = Replica("r", "host", "1", 11, "p", "k", 2, 1.5, 7, None, 1_763_000_000.0)


@pytest.fixture
async def store(database_url: str, tmp_path: Path) -> AsyncIterator[FleetStore]:
    database = open_database(database_url, tmp_path)
    yield FleetStore(database)
    await database.close()


async def test_a_fleet_is_made_once_with_all_it_shares(store: FleetStore) -> None:
    assert await store.fleet() is None
    assert await store.found(FLEET, [DOCUMENT], [PINS]) == "f"
    assert await store.found(FleetRow("g", "k", b""), [DOCUMENT], [PINS]) == "f"
    assert await store.documents() == [DOCUMENT]
    assert await store.pins() == [PINS]
    assert await store.generations() == {"list:agents": 1, "pins:hash": 1}
    assert await store.document("list:none") is None
    assert await store.server_pins("none") is None


async def test_a_document_is_replaced_by_its_next_generation_alone(store: FleetStore) -> None:
    await store.found(FLEET, [DOCUMENT], [])
    revision = (await store.fleet() or FLEET).revision
    second = DocumentRow("list:agents", 2, "key", b"{1}", b"seal")
    assert await store.replace(second)
    assert not await store.replace(second)
    assert not await store.replace(DocumentRow("list:agents", 4, "key", b"{2}", b"seal"))
    assert await store.document("list:agents") == second
    assert (await store.fleet() or FLEET).revision > revision


async def test_of_many_that_change_pins_at_once_none_is_lost(store: FleetStore) -> None:
    def add(number: int) -> Callable[[PinsRow | None], PinsRow]:
        def change(known: PinsRow | None) -> PinsRow:
            generation, marks = (known.generation, dict(known.marks)) if known else (0, {})
            return PinsRow("h", generation + 1, 0, True, marks | {f"t:{number}": ["d", False]}, b"", b"")

        return change

    await asyncio.gather(*(store.change_pins("h", add(number)) for number in range(8)))
    row = await store.server_pins("h")
    assert row is not None
    assert (row.generation, len(row.marks)) == (8, 8)
    assert await store.change_pins("h", lambda _: None) == row


async def test_replicas_say_how_they_are(store: FleetStore) -> None:
    (seen,) = await store.beat(REPLICA)
    assert (seen.replica_id, seen.lag_seconds, seen.waiting_events) == ("r", 1.5, 7)
    assert 0 <= seen.silent < 60
    assert await store.forget_replica("r")
    assert not await store.forget_replica("r")
    assert await store.replicas() == []


async def test_all_secrets_are_sealed_anew_or_none(store: FleetStore) -> None:
    with pytest.raises(StoreUnavailableError, match="no fleet"):
        await store.reseal(lambda fleet, _: (fleet, []))
    await store.found(FLEET, [DOCUMENT], [])
    wrong = DocumentRow("list:agents", 9, "key", b"", b"")
    with pytest.raises(StoreUnavailableError, match="changed at the same moment"):
        await store.reseal(lambda _, __: (FleetRow("f", "new", b"x"), [wrong]))
    assert (await store.fleet() or FLEET).kek_id == "k"
    second = DocumentRow("list:agents", 2, "key", b"", b"")
    await store.reseal(lambda _, __: (FleetRow("f", "new", b"x"), [second]))
    assert (await store.fleet() or FLEET).kek_id == "new"
