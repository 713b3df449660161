"""Events in Postgres: partitions, roles, cut lines, and the ready questions."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from proxy.audit import event_store_postgres as room
from proxy.audit.event_store_postgres import PostgresEvents
from proxy.audit.local_log_files import DaemonLog
from proxy.audit.ship_sources import OwnSource
from proxy.audit.shipper import Route, Shipper
from proxy.core.event import Filter, Head, LogEntry, Written
from proxy.core.model import AuditEvent, Finding
from proxy.core.proposals import Baseline, Consumed, State
from proxy.errors import StoreUnavailableError
from proxy.store.postgres import PostgresDatabase
from proxy.store.proposal_store import Proposals
from proxy.system.package_data import sql_dir
from tests.audit.test_event_store import completed, decided, event
from tests.store.test_proposal_store import NOW, commit, proposal
from tests.support.postgres import Postgres
from tests.support.postgres_cutter import Cutter, How
from tests.support.timeouts import PATIENCE
from tests.support.trail_fixture import signer

DAY = 86_400
WHERE = "SELECT tableoid::regclass::text, count(*) FROM events GROUP BY 1 ORDER BY 1"


@pytest.fixture
def fresh(postgres: Postgres) -> str:
    """A database whose partitions may be changed."""
    return postgres.new_database()


async def opened(url: str) -> AsyncIterator[PostgresEvents]:
    store = PostgresEvents(PostgresDatabase(url, timeout=PATIENCE))
    yield store
    await store.close()


@pytest.fixture
async def events(database_url: str) -> AsyncIterator[PostgresEvents]:
    async for store in opened(database_url):
        yield store


@pytest.fixture
async def alone(fresh: str) -> AsyncIterator[PostgresEvents]:
    async for store in opened(fresh):
        yield store


def partition(moment: float) -> str:
    return time.strftime("events_%Y%m%d", time.gmtime(moment))


class TestPartitions:
    async def test_each_day_has_its_own_and_the_rest_is_taken_too(
        self, alone: PostgresEvents, fresh: str, postgres: Postgres
    ) -> None:
        now = time.time()
        times = [now, now + DAY, now + 60 * DAY, NOW]
        await alone.write([decided(number, time=moment) for number, moment in enumerate(times)])
        found = dict(line.split("|") for line in postgres.psql(WHERE, fresh).splitlines())
        assert found == {partition(now): "1", partition(now + DAY): "1", "events_default": "2"}

    async def test_what_came_before_its_partition_moves_there(
        self, alone: PostgresEvents, fresh: str, postgres: Postgres
    ) -> None:
        soon = time.time() + 20 * DAY
        await alone.write([decided(1, time=soon), decided(2, time=NOW)])
        assert "events_default|2" in postgres.psql(WHERE, fresh)
        await alone.prepare(time.time() + 8 * DAY)
        assert postgres.psql(WHERE, fresh).splitlines() == [f"{partition(soon)}|1", "events_default|1"]
        assert await alone.write([decided(1, time=soon), decided(2, time=NOW)]) == Written(2)
        assert (await alone.stats(Filter())).events == 2

    async def test_many_may_make_them_at_once(self, alone: PostgresEvents, fresh: str, postgres: Postgres) -> None:
        later = time.time() + 10 * DAY
        await asyncio.gather(*(alone.prepare(later) for _ in range(6)))
        await alone.write([decided(1, time=later + 13 * DAY)])
        assert postgres.psql(WHERE, fresh) == f"{partition(later + 13 * DAY)}|1"

    async def test_nobody_makes_them_without_bound(self, alone: PostgresEvents, fresh: str, postgres: Postgres) -> None:
        made = postgres.psql("SELECT interlock_make_partitions('1970-01-01', '9999-01-01')", fresh)
        assert 60 < int(made) <= 81
        assert postgres.psql("SELECT interlock_make_partitions('1970-01-01', '9999-01-01')", fresh) == "0"

    async def test_days_that_are_over_are_dropped_whole(
        self, alone: PostgresEvents, fresh: str, postgres: Postgres
    ) -> None:
        today = time.time() // DAY * DAY
        times = [NOW, today - DAY / 2, today + DAY / 2, today + DAY * 3 / 4]
        await alone.write([decided(number, time=moment) for number, moment in enumerate(times)])
        await alone.write([decided(9, time=today - DAY * 3 / 4)])  # the clock went back by a day
        assert await alone.prune(today + DAY * 2 / 3, [Head("log-1", 2, "")]) == 3
        assert postgres.psql(WHERE, fresh) == f"{partition(today - DAY)}|1\n{partition(today)}|1"
        assert await alone.prune(today + DAY * 2 / 3, [Head("log-1", 2, ""), Head("log-1", 9, "")]) == 2
        await alone.write([decided(3, time=times[3])])
        assert postgres.psql(WHERE, fresh) == f"{partition(today)}|1"
        assert postgres.psql(f"SELECT to_regclass('{partition(today - DAY)}')", fresh) == ""
        assert postgres.psql(f"SELECT to_regclass('{partition(today + DAY)}')", fresh) == partition(today + DAY)


async def test_a_long_report_holds_up_no_shipping(
    alone: PostgresEvents, fresh: str, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.psql(f"DROP TABLE {partition(time.time() + DAY)}", fresh)
    postgres.psql("ALTER FUNCTION interlock_make_partitions SET lock_timeout = '50ms'", fresh)
    report = await asyncpg.connect(fresh)
    async with report.transaction():
        await report.execute("SELECT count(*) FROM events")
        log = DaemonLog(tmp_path)
        await log.record(AuditEvent(event_id="e", kind="k", time=time.time()))
        own = OwnSource(log, "here")
        assert await Shipper(Route(tmp_path, "here"), alone, signer(tmp_path), own).round() == 1
        own.connection.close()
        log.close()
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            await alone.prepare(time.time())
    await report.close()
    await alone.prepare(time.time())
    assert postgres.psql(f"SELECT to_regclass('{partition(time.time() + DAY)}')", fresh)


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_line_that_is_cut_in_a_batch_loses_and_doubles_nothing(
    how: How, database_url: str, events: PostgresEvents
) -> None:
    batch = [decided(number) for number in range(50)]
    async with Cutter(database_url, how, word=b'"event_id"', times=2) as line:
        store = PostgresEvents(PostgresDatabase(line.url, timeout=PATIENCE))
        assert await store.write(batch) == Written(50)
        await store.close()
    assert line.cuts == 2
    assert [entry for _, entry in await events.events(Filter())] == batch


async def test_what_only_the_database_refuses_is_found_by_halves(
    events: PostgresEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "readable", lambda body: '{"time": 1e300}' if body in "25" else decided(int(body)).body)
    written = await events.write([LogEntry(str(number)) for number in range(8)])
    assert (written.kept, sorted(written.poison)) == (6, [2, 5])
    assert (await events.stats(Filter())).events == 6


async def test_an_outage_is_no_poison(postgres: Postgres, database_url: str) -> None:
    store = PostgresEvents(PostgresDatabase(database_url, timeout=PATIENCE))
    postgres.halt()
    try:
        with pytest.raises(StoreUnavailableError):
            await store.write([decided(1), LogEntry("nonsense")])
    finally:
        postgres.start()
    written = await store.write([decided(1), LogEntry("nonsense")])
    assert (written.kept, list(written.poison)) == (1, [1])
    await store.close()


class TestRoles:
    @pytest.fixture
    async def login(self, postgres: Postgres, database_url: str) -> AsyncIterator[Any]:
        """Make a login with one of the roles; return the URL it uses."""
        made: list[str] = []

        def make(role: str) -> str:
            postgres.psql(f"CREATE ROLE some_{role} LOGIN IN ROLE interlock_{role}", database_url)
            made.append(f"some_{role}")
            return database_url.replace("postgres@", f"some_{role}@")

        yield make
        for name in made:
            postgres.psql(f"DROP ROLE {name}", database_url)

    async def test_a_writer_writes_events_and_neither_reads_nor_changes_them(
        self, login: Any, events: PostgresEvents
    ) -> None:
        url = login("writer")
        store = PostgresEvents(PostgresDatabase(url, timeout=PATIENCE))
        await store.database.check()
        assert await store.write([decided(1), decided(1), LogEntry("nonsense")]) == Written(
            2, {2: "it cannot be read as JSON: Expecting value: line 1 column 1 (char 0)"}
        )
        await store.prepare(time.time())
        for ask in (store.find("e0001"), store.calls(Filter()), store.stats(Filter()), store.prune(NOW)):
            with pytest.raises(StoreUnavailableError, match="permission denied"):
                await ask
        await store.close()
        connection = await asyncpg.connect(url)
        for statement in (
            "SELECT 1 FROM events",
            "UPDATE events SET body = ''",
            "DELETE FROM events",
            "TRUNCATE events",
            "DROP TABLE events",
            "SELECT 1 FROM events_default",
            "DELETE FROM events_default",
            "INSERT INTO events_default SELECT * FROM events_default",
            "SELECT interlock_drop_events(now())",
            "SELECT interlock_grant_roles()",
            "SELECT 1 FROM tool_calls",
            "UPDATE interlock_migrations SET checksum = ''",
            "UPDATE proposals SET arguments_hash = ''",
            "UPDATE commits SET nonce = ''",
            "INSERT INTO tool_prompt_baselines VALUES ('', '', '', now(), '')",
        ):
            with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.FeatureNotSupportedError)):
                await connection.execute(statement)
        await connection.close()
        assert len(await events.find("e0001")) == 1

    async def test_a_writer_does_all_that_two_phase_needs(self, login: Any, database_url: str) -> None:
        store = Proposals(PostgresDatabase(login("writer")))
        assert await store.propose(proposal(), NOW) == proposal()
        assert await store.propose(proposal("p2"), NOW) == proposal()
        how: dict[str, Any] = {"operator": "o", "reason": "", "now": NOW, "expires_at": NOW + 60}
        assert await store.decide("p1", State.APPROVED, **how)
        assert await store.consume(commit()) is Consumed.OURS
        assert await store.end("nonce-p1", "call-1", "input_required", NOW, "q")
        assert await store.resume("nonce-p1", "call-2", "q")
        assert await store.end("nonce-p1", "call-2", "done", NOW)
        assert await store.baselines() == []
        assert await store.sweep(NOW + 9999, 1) == 2
        with pytest.raises(StoreUnavailableError, match="permission denied"):
            await store.set_baseline(Baseline("", "t", "h", NOW))
        await store.close()

    async def test_a_reader_reads_everything_and_changes_nothing(self, login: Any, events: PostgresEvents) -> None:
        await events.write([decided(1)])
        store = PostgresEvents(PostgresDatabase(login("reader")))
        assert len(await store.calls(Filter())) == 1
        assert len(await store.find("e0001")) == 1
        for view in ("denied_calls", "two_phase_ledger", "server_behaviour", "proposals", "commits"):
            await store.database.fetch(f"SELECT 1 FROM {view}")
        for ask in (store.write([decided(2)]), store.prune(NOW), store.prepare(NOW)):
            with pytest.raises(StoreUnavailableError, match="permission denied"):
                await ask
        await store.close()


def questions() -> dict[str, str]:
    parts = re.split(r"^-- name: (\w+)\n", (sql_dir() / "audit_queries.sql").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


EXPECTED = {
    "who_called_what_yesterday": [("ada", "files.example:443", "read_file", 2, 1)],
    "denials_by_rule": [("no-etc", "policy_denied", 1, 1)],
    "latest_denials": [("no-etc",)],
    "secrets_caught_by_tool": [("files.example:443", "read_file", "secrets.aws", 2, 1, 1)],
    "commits_without_approval": [("p1",)],
    "slowest_tools": [("files.example:443", "slow_tool", 1)],
    "new_tools_this_week": [("files.example:443", "new_tool"), ("files.example:443", "pay")],
    "calls_that_never_ended": [("c7",)],
    "shadow_rules_that_would_have_matched": [("try-first", 1)],
    "who_approved_what": [("approved", "olga", "ada", "files.example:443", "pay", "p2", "fine")],
    "first_use_by_agent": [("bob", "files.example:443", "new_tool"), ("bob", "files.example:443", "pay")],
    "daily_volume": [(5, 1)],
    "secrets_by_host": [("files.example:443", "secrets.aws", 2, 1)],
    "difference_of_two_days": [("ada", "files.example:443", "read_file", 0, 2)],
}


APPROVED = {"proposal_id": "p2", "operator": "olga", "reason": "fine"}


@pytest.mark.parametrize("name", questions())
async def test_a_ready_question_has_its_answer(name: str, events: PostgresEvents, database_url: str) -> None:
    now = time.time()
    midnight = now // DAY * DAY
    finding = Finding("secrets.aws", "$.k", "f")
    await events.write(
        [
            decided(1, agent="bob", time=now - 10 * DAY),
            decided(
                2,
                time=midnight - 7200,
                redactions=(finding, replace(finding, record_only=True)),
                shadow_rules=("try-first",),
            ),
            completed(3, 2, time=midnight - 7199),
            decided(4, time=midnight - 3600, decision="deny", reason="policy_denied", rule="no-etc"),
            completed(5, 6, agent="bob", time=now - 60, tool="slow_tool", total_ms=900.0),
            decided(6, agent="bob", time=now - 61, tool="slow_tool"),
            decided(7, agent="bob", time=now - 600, tool="new_tool"),
            decided(8, agent="bob", time=now - 9 * DAY, tool="slow_tool"),
            event(9, "proposed", time=now - 50, tool="pay", detail={"proposal_id": "p1", "approval": "human"}),
            event(10, "committed", time=now - 40, tool="pay", detail={"proposal_id": "p1"}),
            event(11, "proposed", time=now - 50, tool="pay", detail={"proposal_id": "p2", "approval": "auto"}),
            event(12, "committed", time=now - 40, tool="pay", detail={"proposal_id": "p2"}),
            decided(13, agent="bob", time=now - 40, tool="pay"),
            event(14, "approved", time=now - 45, tool="pay", detail=APPROVED),
        ]
    )
    connection = await asyncpg.connect(database_url, server_settings={"timezone": "UTC"})
    found = [tuple(row.values()) for row in await connection.fetch(questions()[name])]
    await connection.close()
    expected = EXPECTED[name]
    # Right after midnight, what the others did was yesterday as well.
    if name in ("who_called_what_yesterday", "difference_of_two_days"):
        found = [row for row in found if row[0] == "ada"]
    if name == "daily_volume":
        found = [("", sum(row[1] for row in found), sum(row[2] for row in found))]
    if name == "first_use_by_agent":
        early = {"new_tool": now - 600 < midnight, "pay": now - 40 < midnight}
        expected = [row for row in expected if not early[row[2]]] or [("", "", "")]
        found = found or [("", "", "")]
    where = {"latest_denials": 5, "calls_that_never_ended": 1, "who_approved_what": 1, "daily_volume": 1}.get(name, 0)
    assert [row[where : where + len(expected[0])] for row in found] == expected


async def counted(events: PostgresEvents) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Return the counts, and what they should be."""
    by = "kind, agent, server, tool, decision"
    end = "GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6"
    counts = f"SELECT hour, {by}, sum(events)::bigint FROM event_counts {end}"
    hour = "date_trunc('hour', ts, 'UTC')"
    there = f"SELECT {hour}, {by}, count(*) FROM events WHERE kind = 'decided' {end}"
    found, expected = await events.database.fetch(counts), await events.database.fetch(there)
    return [tuple(row) for row in found], [tuple(row) for row in expected]


async def test_events_are_counted_by_the_hour_each_once(events: PostgresEvents) -> None:
    batch = [decided(number, time=NOW - number * 900, agent=f"a{number % 3}") for number in range(1, 40)]
    await events.write(batch[:20])
    await events.write(batch)  # what is there already is not counted again
    await events.write([completed(100, 1), event(101, "approved")])
    found, expected = await counted(events)
    assert found == expected
    assert sum(int(str(row[-1])) for row in found) == 39
    assert await events.database.fetch("SELECT interlock_sum_counts()")
    assert await counted(events) == (expected, expected)
    ((rows,),) = await events.database.fetch("SELECT count(*) FROM event_counts")
    assert rows >= len(expected)


async def test_a_batch_that_is_refused_is_not_counted(events: PostgresEvents) -> None:
    await events.write([decided(1), LogEntry("no event"), decided(2)])
    found, expected = await counted(events)
    assert (found, sum(int(str(row[-1])) for row in found)) == (expected, 2)


async def test_what_was_pruned_is_not_counted_any_more(events: PostgresEvents) -> None:
    chain = [decided(number, time=NOW - (60 - number) * 3600) for number in range(1, 60)]
    await events.write([one._replace(writer="log-9", seq=seq, chain="c") for seq, one in enumerate(chain, 1)])
    assert await events.prune(NOW - 30.5 * 3600, [Head("log-9", 29, "c")]) == 29
    found, expected = await counted(events)
    assert found == expected
    assert found
