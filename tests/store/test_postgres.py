"""Postgres as a database: what breaks, hangs or is not there is reported in time and recovers by itself."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from proxy.core.proposals import Consumed, State
from proxy.errors import SchemaError, StoreUnavailableError
from proxy.store import postgres as module
from proxy.store.postgres import PostgresDatabase, connect, migrate, unavailable
from proxy.store.proposal_store import Proposals
from tests.store.test_proposal_store import NOW, commit, committed, proposal
from tests.support.harness import free_port
from tests.support.postgres import Postgres
from tests.support.postgres_cutter import Cutter, How
from tests.support.timeouts import PATIENCE

SOON = PATIENCE / 2
NONCE = b"nonce-p1"  # in the values of the one statement that stores a proposal or a commit, and commits by itself


@pytest.fixture
async def direct(database_url: str) -> AsyncIterator[Proposals]:
    store = patient(database_url)
    yield store
    await store.close()


@pytest.fixture
async def other(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection of somebody else's."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


def patient(url: str) -> Proposals:
    """Return a store that gives up later than any test here waits."""
    return Proposals(PostgresDatabase(url, timeout=2 * PATIENCE))


async def one(database: PostgresDatabase) -> int:
    return int((await database.fetch("SELECT $1::int", 1))[0][0])


async def refused(database: PostgresDatabase, match: str | None = None) -> float:
    """Return how long it took to be refused."""
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=match):
        await one(database)
    return time.monotonic() - started


@pytest.mark.parametrize("how", ["before", "after"])
class TestABrokenConnection:
    """A cut looks the same before and after the commit; what is answered is what happened."""

    async def test_a_nonce_has_its_right_owner(self, how: How, database_url: str, direct: Proposals) -> None:
        await direct.propose(proposal(state=State.PROPOSED), NOW)
        async with Cutter(database_url, how, word=NONCE) as line:
            store = patient(line.url)
            assert await store.consume(commit()) is Consumed.OURS
            await store.close()
        assert line.cuts == 1
        assert await direct.commit("nonce-p1") == commit()
        assert await direct.consume(commit(attempt="call-2")) is Consumed.REPLAY

    async def test_a_competitor_that_comes_between_is_seen(
        self, how: How, database_url: str, direct: Proposals
    ) -> None:
        await direct.propose(proposal(state=State.PROPOSED), NOW)
        theirs = []

        async def compete() -> None:
            theirs.append(await direct.consume(commit(attempt="theirs")))

        async with Cutter(database_url, how, word=NONCE, then=compete) as line:
            store = patient(line.url)
            ours = await store.consume(commit(attempt="ours"))
            await store.close()
        assert {ours, *theirs} == {Consumed.OURS, Consumed.REPLAY}
        kept = await direct.commit("nonce-p1")
        assert kept is not None
        assert kept.attempt_id == ("ours" if ours is Consumed.OURS else "theirs")
        assert (ours is Consumed.OURS) is (how == "after")

    async def test_a_proposal_is_kept_once(self, how: How, database_url: str, direct: Proposals) -> None:
        async with Cutter(database_url, how, word=NONCE) as line:
            store = patient(line.url)
            assert await store.propose(proposal(), NOW) == proposal()
            await store.close()
        assert await direct.proposals() == [proposal()]

    async def test_a_decision_is_told_as_made(self, how: How, database_url: str, direct: Proposals) -> None:
        await direct.propose(proposal(), NOW)
        async with Cutter(database_url, how) as line:
            store = patient(line.url)
            decided = await store.decide("p1", State.APPROVED, operator="o", reason="", now=NOW, expires_at=NOW + 9)
            await store.close()
        assert decided is not None
        assert decided == await direct.proposal("p1")

    async def test_an_attempt_goes_on_and_ends_once(self, how: How, database_url: str, direct: Proposals) -> None:
        await committed(direct)
        await direct.end("nonce-p1", "call-1", "input_required", NOW + 2, "q")
        for ask in ("resume", "end"):
            async with Cutter(database_url, how) as line:
                store = patient(line.url)
                if ask == "resume":
                    assert await store.resume("nonce-p1", "call-2", "q")
                else:
                    assert await store.end("nonce-p1", "call-2", "done", NOW + 4)
                await store.close()
            assert line.cuts == 1
        assert await direct.commit("nonce-p1") == commit(attempt="call-2", attempts=2, outcome="done", ended_at=NOW + 4)

    async def test_one_that_breaks_each_time_is_told_and_was_tried_a_bounded_number_of_times(
        self, how: How, database_url: str, direct: Proposals
    ) -> None:
        await direct.propose(proposal(state=State.PROPOSED), NOW)
        async with Cutter(database_url, how, word=NONCE, times=99) as line:
            store = patient(line.url)
            if how == "before":
                with pytest.raises(StoreUnavailableError):
                    await store.consume(commit())
                assert line.cuts == 3
            else:  # reading the owner back needs a commit as well, but changes nothing
                with pytest.raises(StoreUnavailableError):
                    await store.consume(commit())
                assert await direct.consume(commit()) is Consumed.OURS
            await store.close()


async def test_a_backend_that_is_ended_in_the_middle_is_one_try(
    direct: Proposals, other: asyncpg.Connection[Any]
) -> None:
    await direct.propose(proposal(state=State.PROPOSED), NOW)
    lock = other.transaction()
    await lock.start()
    await other.execute("SELECT 1 FROM proposals FOR UPDATE")
    ours = asyncio.create_task(direct.consume(commit()))
    async with asyncio.timeout(SOON):
        while not await other.fetchval(ENDED):
            await other.execute(LOOK_AGAIN)
            await asyncio.sleep(0.01)
    await lock.rollback()
    assert await ours is Consumed.OURS
    assert await direct.commit("nonce-p1") == commit()


LOOK_AGAIN = "SELECT pg_stat_clear_snapshot()"  # what others do is told as it was when a transaction first asked
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND query LIKE '%UPDATE proposals%' AND pid <> pg_backend_pid()
"""
ENDED = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%UPDATE proposals%'
"""


async def test_what_hangs_is_given_up_in_time(database_url: str, direct: Proposals) -> None:
    await direct.propose(proposal(state=State.PROPOSED), NOW)
    async with Cutter(database_url, "hang", word=NONCE) as line:
        database = PostgresDatabase(line.url, timeout=2 * PATIENCE)
        await database.check()
        database._timeout = 0.5
        async with asyncio.timeout(SOON):
            with pytest.raises(StoreUnavailableError, match="no answer in time"):
                await Proposals(database).consume(commit())
        database._timeout = PATIENCE
        assert await Proposals(database).commit("nonce-p1") is None
        await database.close()


async def test_nobody_at_the_address_is_told_at_once() -> None:
    database = PostgresDatabase(f"postgresql://u:s3cret@127.0.0.1:{free_port()}/x", timeout=2 * PATIENCE)
    assert await refused(database, r"u:\*\*\*@127") < SOON
    with pytest.raises(StoreUnavailableError) as caught:
        await database.execute("SELECT 1")
    assert "s3cret" not in str(caught.value)
    await database.close()


async def test_somebody_who_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        database = PostgresDatabase(f"postgresql://u@127.0.0.1:{deaf.getsockname()[1]}/x", timeout=0.3)
        assert 0.2 < await refused(database, "no answer in time") < SOON
        with pytest.raises(StoreUnavailableError):
            await database.check()
        await database.close()


async def test_somebody_who_speaks_another_language_is_told() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        database = PostgresDatabase(f"postgresql://u@127.0.0.1:{port}/x?sslmode=disable", timeout=2 * PATIENCE)
        assert await refused(database) < SOON
        await database.close()


@pytest.mark.parametrize("url", ["postgresql://nobody@/{}?host={}", "postgresql://postgres@/gone?host={1}"])
async def test_a_wrong_user_or_database_is_told(url: str, postgres: Postgres, database_url: str) -> None:
    database = PostgresDatabase(url.format("postgres", database_url.partition("?host=")[2]), timeout=2 * PATIENCE)
    assert await refused(database, "does not exist") < SOON
    await database.close()


@pytest.mark.parametrize("url", ["sqlite:///x", "", "postgresql://u:p/w@h/db", "postgresql://h:port/db"])
def test_a_url_of_something_else_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="write postgresql://") as caught:
        PostgresDatabase(url)
    assert not url or url not in str(caught.value)


async def test_it_comes_back_by_itself(postgres: Postgres, database_url: str) -> None:
    database = PostgresDatabase(database_url, timeout=2 * PATIENCE)
    assert await one(database) == 1
    postgres.halt()
    try:
        assert await refused(database) < SOON
    finally:
        postgres.start()
    assert await one(database) == 1
    await database.close()


async def test_one_that_is_down_at_the_start_is_used_when_it_is_there(postgres: Postgres, database_url: str) -> None:
    postgres.halt()
    try:
        database = PostgresDatabase(database_url, timeout=2 * PATIENCE)
        assert await refused(database) < SOON
    finally:
        postgres.start()
    assert await one(database) == 1
    await database.close()


async def test_a_lock_that_is_held_is_waited_for_in_time_only(
    direct: Proposals, other: asyncpg.Connection[Any], database_url: str
) -> None:
    await direct.propose(proposal(state=State.PROPOSED), NOW)
    store = Proposals(PostgresDatabase(database_url, timeout=0.5, connections=2))
    lock = other.transaction()
    await lock.start()
    await other.execute("SELECT 1 FROM proposals FOR UPDATE")
    started = time.monotonic()
    outcomes = await asyncio.gather(*(store.consume(commit(attempt=a)) for a in "abcdef"), return_exceptions=True)
    assert time.monotonic() - started < SOON
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailableError}
    async with asyncio.timeout(SOON):  # the server gives them up as well, so none takes effect later
        while await other.fetchval(WAITING):
            await other.execute(LOOK_AGAIN)
            await asyncio.sleep(0.01)
    await lock.rollback()
    assert await direct.consume(commit(attempt="g")) is Consumed.OURS
    await store.close()


async def test_a_database_without_our_tables_names_the_way_out_until_it_has_them(postgres: Postgres) -> None:
    url = postgres.new_database(migrated=False)
    database = PostgresDatabase(url, timeout=2 * PATIENCE)
    for ask in (database.check(), one(database), Proposals(database).proposal("p")):
        with pytest.raises(SchemaError, match=r"lacks migration 0001_two_phase; run `interlock db migrate`"):
            await ask
    await migrate(url)
    await database.check()
    assert await one(database) == 1
    await database.close()


async def test_tables_that_went_away_are_a_store_that_cannot_be_used(postgres: Postgres) -> None:
    url = postgres.new_database()
    store = patient(url)
    assert await store.proposal("p") is None
    postgres.psql("DROP TABLE commits, proposals CASCADE", url)
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        await store.proposal("p")
    await store.close()


async def test_a_role_that_may_not_is_refused(postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.psql("CREATE ROLE guest LOGIN; GRANT SELECT ON interlock_migrations, proposals TO guest", url)
    store = patient(url.replace("postgres@", "guest@"))
    assert await store.proposal("p") is None
    with pytest.raises(StoreUnavailableError, match="permission denied"):
        await store.propose(proposal(), NOW)
    await store.close()
    postgres.psql("DROP OWNED BY guest; DROP ROLE guest", url)


async def test_the_server_ends_what_a_vanished_proxy_left_open(database_url: str) -> None:
    """Else its locks would stop every other replica for good."""

    database = PostgresDatabase(database_url, timeout=30)
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "application_name")
    found = [(await database.fetch("SELECT current_setting($1)", name))[0][0] for name in names]
    assert found == ["30s", "30s", "interlock"]
    await database.close()


async def test_closing_does_not_wait_for_what_hangs(database_url: str) -> None:
    async with Cutter(database_url, "hang", word=b"pg_sleep") as line:
        database = PostgresDatabase(line.url, timeout=2 * PATIENCE)
        asking = asyncio.create_task(database.fetch("SELECT pg_sleep($1)", 0.0))
        async with asyncio.timeout(SOON):
            while not line.cuts:
                await asyncio.sleep(0.01)
        database._timeout = 0.5
        async with asyncio.timeout(SOON):
            await database.close()
        with pytest.raises(StoreUnavailableError):
            await asking


@pytest.mark.parametrize("seconds", [0.0, -1.5, 946_684_800.0, 1_763_000_000.123457, 32_503_680_000.0])
async def test_times_are_seconds_both_ways(seconds: float, database_url: str) -> None:
    connection = await connect(database_url)
    assert await connection.fetchval("SELECT $1::timestamptz", seconds) == pytest.approx(seconds, abs=1e-6, rel=0)
    assert await connection.fetchval("SELECT extract(epoch FROM $1::timestamptz)::float8", seconds) == pytest.approx(
        seconds, abs=1e-6, rel=0
    )
    assert await connection.fetchval("SELECT $1::timestamptz", None) is None
    await connection.close()


async def test_no_connection_is_told_without_the_password() -> None:
    with pytest.raises(StoreUnavailableError, match=r"u:\*\*\*@127") as caught:
        await connect(f"postgresql://u:s3cret@127.0.0.1:{free_port()}/x", 1)
    assert "s3cret" not in str(caught.value)


async def test_a_wrong_url_is_told() -> None:
    with pytest.raises(StoreUnavailableError, match="write postgresql://"):
        await connect("http://x")


def test_an_error_of_ours_stays_what_it_is_and_others_say_what_they_can() -> None:
    ours = SchemaError("x")
    assert unavailable("postgresql://h/d", ours) is ours
    assert "no answer in time" in str(unavailable("postgresql://h/d", TimeoutError()))
    assert "first" in str(unavailable("postgresql://h/d", OSError("first\nsecond")))
    assert "second" not in str(unavailable("postgresql://h/d", OSError("first\nsecond")))
    assert "KeyError" in str(unavailable("postgresql://h/d", KeyError()))


@pytest.mark.parametrize("error", [ConnectionResetError, asyncio.CancelledError])
async def test_a_connection_that_breaks_while_it_is_tried_is_closed(
    database_url: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[asyncpg.Connection[Any]] = []

    async def breaks(connection: asyncpg.Connection[Any]) -> bool:
        tried.append(connection)
        raise error

    monkeypatch.setattr(module, "_has_our_settings", breaks)
    with pytest.raises(error):
        await module._open(database_url)
    assert tried[0].is_closed()
