"""What lies between a proxy and its Postgres: round trips, a transaction pooler, TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme

from proxy.audit.encoder import encode
from proxy.audit.event_store_postgres import PostgresEvents
from proxy.core.event import Filter, LogEntry
from proxy.core.proposals import Consumed, State
from proxy.errors import StoreUnavailableError
from proxy.store import postgres as module
from proxy.store.postgres import MARK, PostgresDatabase, connect, is_pooled, migrate, schema_of
from proxy.store.proposal_store import Proposals
from tests.store.test_proposal_store import NOW, commit, proposal
from tests.support.postgres_lines import DEBIAN, counting, pgbouncer, tls_postgres
from tests.support.system_needs import needs
from tests.support.timeouts import PATIENCE
from tests.support.trail_fixture import event


async def test_a_proposal_and_a_commit_take_few_round_trips(database_url: str) -> None:
    async with counting(database_url) as trips:
        store = Proposals(PostgresDatabase(trips.url, timeout=PATIENCE))
        taken: dict[str, int] = {}

        async def propose(number: int) -> None:
            assert await store.baseline("s", "t") is None
            await store.propose(proposal(f"p{number}", state=State.PROPOSED, arguments_hash=str(number)), NOW)

        async def consume(number: int) -> None:
            assert await store.proposal(f"p{number}") is not None
            assert await store.consume(commit(f"p{number}")) is Consumed.OURS

        for number in (1, 2):  # the first prepares the statements
            for step in (propose, consume):
                before = trips.count
                await step(number)
                taken[step.__name__] = trips.count - before
        assert taken["propose"] <= 3
        assert taken["consume"] <= 3
        await store.close()


async def test_many_commits_at_once_have_one_winner(database_url: str) -> None:
    stores = [Proposals(PostgresDatabase(database_url, timeout=PATIENCE)) for _ in range(4)]
    await stores[0].propose(proposal(state=State.PROPOSED), NOW)
    tries = [stores[at % 4].consume(commit(attempt=f"call-{at}")) for at in range(24)]
    assert sorted(await asyncio.gather(*tries)) == sorted([Consumed.OURS, *[Consumed.REPLAY] * 23])
    for store in stores:
        await store.close()


TAKES_OURS = "ignore_startup_parameters = jit,statement_timeout,idle_in_transaction_session_timeout"
TAKES_ALL = f"{TAKES_OURS},{MARK}"  # as poolers do that drop what they do not know


@needs("pgbouncer")
@pytest.mark.parametrize("more", ["", TAKES_OURS, TAKES_ALL])
async def test_a_transaction_pooler_may_be_in_between(more: str, database_url: str) -> None:
    with pgbouncer(database_url, more) as url:
        databases = [PostgresDatabase(url, timeout=PATIENCE) for _ in range(3)]
        stores = [Proposals(one) for one in databases]
        made = [proposal(f"p{at}", state=State.PROPOSED, arguments_hash=str(at)) for at in range(12)]
        await asyncio.gather(*(stores[at % 3].propose(one, NOW) for at, one in enumerate(made)))
        ends = [stores[at % 3].consume(commit(f"p{at % 12}", attempt=f"call-{at}")) for at in range(36)]
        assert [await one for one in ends].count(Consumed.OURS) == 12
        events = PostgresEvents(databases[0])
        await asyncio.gather(*(events.write([LogEntry(encode(event(at)), "w", at, "00")]) for at in range(9)))
        assert len(await events.events(Filter())) == 9
        assert (await schema_of(url)).problem() is None
        assert is_pooled(url)
        for one in databases:
            await one.close()
        module._POOLERS.discard(url)


@pytest.mark.skipif(not DEBIAN.exists(), reason="SKIPPED FOR WANT OF postgresql-15: run `make postgres-lines` as root")
async def test_tls_is_as_strict_as_the_url_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    stranger.cert_pem.write_to_path(tmp_path / "stranger.pem")
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)

    async def encrypted(url: str) -> bool:
        connection = await connect(url, PATIENCE)
        (row,) = await connection.fetch("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        await connection.close()
        return bool(row[0])

    with tls_postgres(authority) as port:
        base, by_number = (
            f"postgresql://postgres@localhost:{port}/postgres",
            f"postgresql://postgres@127.0.0.1:{port}/postgres",
        )
        for good in (
            "sslmode=require",
            f"sslmode=verify-ca&sslrootcert={tmp_path}/ca.pem",
            f"sslmode=verify-full&sslrootcert={tmp_path}/ca.pem",
        ):
            assert await encrypted(f"{base}?{good}"), good
        assert await encrypted(f"{by_number}?sslmode=verify-ca&sslrootcert={tmp_path}/ca.pem")
        bad = [
            f"{base}?sslmode=disable",
            f"{base}?sslmode=verify-full&sslrootcert={tmp_path}/stranger.pem",
            f"{base}?sslmode=verify-full&sslrootcert={tmp_path}/none.pem",
            f"{by_number}?sslmode=verify-full&sslrootcert={tmp_path}/ca.pem",  # the certificate names localhost
            f"{base}?sslrootcert=system",  # the system does not know this CA
            f"{base}?sslrootcert=system&sslmode=require",  # checks no name: a mistake
        ]
        for url in bad:
            with pytest.raises(StoreUnavailableError):
                await encrypted(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))  # now the system knows it
        assert await encrypted(f"{base}?sslrootcert=system")
        with pytest.raises(StoreUnavailableError):
            await encrypted(f"{by_number}?sslrootcert=system&sslmode=verify-full")
        assert await migrate(f"{base}?sslrootcert=system")
        database = PostgresDatabase(f"{base}?sslrootcert=system", timeout=PATIENCE)
        await database.check()
        await database.close()
