"""What workers share, over replicas: nothing is asked while a replica is alone, and all is found where it is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.errors import SharedCallsUnavailableError
from proxy.store import replica_calls as module
from proxy.store.postgres import PostgresDatabase
from proxy.store.replica_calls import ReplicaCalls
from proxy.store.shared_calls import SharedCalls, open_shared_calls
from proxy.system.replica_name import replica_name
from tests.faults.load import wait_until
from tests.gate.test_in_flight_json import WHOLE
from tests.support.gate_fixture import CONTEXT

OPEN = replace(WHOLE, closed=False)
type Make = Callable[..., ReplicaCalls]


@pytest.fixture
def make(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)
    made = []

    def one(number: int, url: str = database_url, *, lead: bool = True) -> ReplicaCalls:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        near = SharedCalls(shared := open_shared_calls(folder, handed=None if lead else shared_name(folder)))
        made.append(
            ReplicaCalls(
                near,
                lambda: PostgresDatabase(url, timeout=2),
                replica_name(folder),
                b"k" * 32,
                noted=shared / "others",
                lead=lead,
            )
        )
        return made[-1]

    yield one
    for each in made:
        each.close()


def shared_name(folder: Path) -> str:
    return next(folder.glob("shared-calls-*")).name


@pytest.fixture
def two(make: Make) -> tuple[ReplicaCalls, ReplicaCalls]:
    first, second = make(1), make(2)
    wait_until(lambda: first.spans_replicas and second.spans_replicas)
    return first, second


async def test_one_replica_alone_asks_nothing_of_the_database(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = make(1)
    assert alone._ready.wait(10)
    assert not alone.spans_replicas
    monkeypatch.setattr(alone, "_submit", lambda _: pytest.fail("it asks"))
    alone.post(OPEN)
    assert alone.find(CONTEXT, "nothing") is None
    assert alone.of_session(OPEN.context)
    assert not alone.is_endpoint("s", "/x")
    alone.add_endpoint("s", "/x")
    alone.release(CONTEXT, 1)
    assert alone.end(OPEN.call_id)


def test_of_the_workers_of_a_replica_that_is_alone_one_asks_the_database(make: Make, database_url: str) -> None:
    lead = make(1)
    assert lead._ready.wait(10)
    beats: list[int] = []
    second = make(1, lead=False)
    wait_until(lambda: second._board is not None)
    board = second._board
    assert board is not None
    board.beat = lambda: beats.append(1)  # type: ignore[assignment,method-assign,return-value]
    assert second._ready.wait(10)
    assert beats == []
    del board.beat
    make(2)
    wait_until(lambda: lead.spans_replicas and second.spans_replicas)


async def test_ids_calls_and_endpoints_of_one_replica_are_known_to_the_other(
    two: tuple[ReplicaCalls, ReplicaCalls],
) -> None:
    first, second = two
    assert await first.claim_afar(CONTEXT, 1)
    assert not await second.claim_afar(CONTEXT, 1)
    first.release(CONTEXT, 1)
    for _ in range(200):
        if await second.claim_afar(CONTEXT, 1):
            break
    else:
        raise AssertionError("it was not released")
    legacy = replace(OPEN, context=replace(OPEN.context, transport="sse"))
    first.post(legacy)
    assert second.find(legacy.context, "7") is not None
    assert second.find(legacy.context, "7", near=True) is None
    assert [call.call_id for call in second.of_session(legacy.context)] == [legacy.call_id]
    assert first.ended([legacy.call_id]) == set()
    assert second.end(legacy.call_id)
    assert first.ended([legacy.call_id]) == {legacy.call_id}
    assert not first.end(legacy.call_id)
    first.add_endpoint("server", "/messages")
    assert second.is_endpoint("server", "/messages")
    first.add_mcp_endpoint("server", "/mcp", "bot")
    first.own_credential("digest", "site-1")
    wait_until(lambda: second.is_mcp_endpoint("server", "/mcp"))
    wait_until(lambda: ("digest", "site-1") in second.new_credentials())


def test_a_call_that_is_closed_before_it_is_posted_has_one_end_all_the_same(
    two: tuple[ReplicaCalls, ReplicaCalls],
) -> None:
    first, second = two
    for number in range(20):
        call = replace(OPEN, call_id=f"closed-{number}")
        first.post(call)
        call.closed = True  # as the gate does, before it asks who ends the call
        assert first.end(call.call_id)
        assert not second.end(call.call_id)


def test_a_call_that_ends_before_it_is_posted_has_one_end(two: tuple[ReplicaCalls, ReplicaCalls]) -> None:
    first, second = two
    for number in range(50):
        call = replace(OPEN, call_id=f"call-{number}")
        first.post(call)  # of a stream: posted later
        assert first.ended([call.call_id]) == set(), "it is on its way, and not ended"
        assert first.end(call.call_id)
        assert not first.end(call.call_id)
        assert second.find(call.context, "7") is not None
        assert not second.end(call.call_id)


async def test_a_database_that_is_away_is_not_asked_again_and_again(
    two: tuple[ReplicaCalls, ReplicaCalls], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = two
    monkeypatch.setattr(module, "ASK_SECONDS", 0.0)
    answers = threading.Event()
    first._loop.call_soon_threadsafe(answers.wait)  # until then nothing is answered
    try:
        with pytest.raises(SharedCallsUnavailableError):
            first.find(CONTEXT, "x")
    finally:
        answers.set()
    monkeypatch.setattr(first, "_submit", lambda _: pytest.fail("it asks"))
    with pytest.raises(SharedCallsUnavailableError):
        first.find(CONTEXT, "x")
    with pytest.raises(SharedCallsUnavailableError):
        await first.claim_afar(CONTEXT, 1)
    assert not first.is_endpoint("s", "/x")


def test_no_database_at_all_leaves_what_the_machine_has(make: Make) -> None:
    alone = make(1, url="postgresql://127.0.0.1:1/none")
    alone.post(OPEN)
    assert alone.find(OPEN.context, "7") == OPEN
    assert not alone.spans_replicas


def test_a_replica_that_ends_is_alone_no_more_counted(two: tuple[ReplicaCalls, ReplicaCalls], make: Make) -> None:
    first, second = two
    third = make(3)
    wait_until(lambda: third.spans_replicas)
    second.close()
    first.close()
    wait_until(lambda: not third.spans_replicas)
