"""The embedded store's file: private, durable, shared by processes, and told apart from what is none."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from proxy.core.proposals import Consumed, State
from proxy.errors import SchemaError, StoreUnavailableError
from proxy.store import sqlite as room
from proxy.store.database import Transaction
from proxy.store.migrate import Migration
from proxy.store.proposal_store import Proposals
from proxy.store.sqlite import SqliteDatabase, schema_version
from tests.store.test_proposal_store import NOW, commit, proposal
from tests.support.timeouts import PATIENCE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "store" / "interlock.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = SqliteDatabase(path)
    yield opened
    await opened.close()


def keep_and_hold(path: Path, kept: Any) -> None:
    async def run() -> None:
        store = Proposals(SqliteDatabase(path))
        await store.propose(proposal(state=State.PROPOSED), NOW)
        await store.consume(commit())
        kept.set()
        await asyncio.sleep(60)

    asyncio.run(run())


def open_at_once(path: Path, ready: Any) -> None:
    async def run() -> None:
        database = SqliteDatabase(path)
        ready.wait(PATIENCE)
        await database.check()
        await database.close()

    asyncio.run(run())


async def test_only_the_owner_can_read_the_files(path: Path, database: SqliteDatabase) -> None:
    before = os.umask(0)
    try:
        await Proposals(database).propose(proposal(), NOW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes.values()) == {0o600}
    assert {"interlock.db", "interlock.db-wal"} <= modes.keys()


async def test_it_is_durable_in_each_transaction(database: SqliteDatabase) -> None:
    for pragma, value in (("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)):
        assert await database.fetch(f"PRAGMA {pragma}") == [(value,)]


def test_what_was_acknowledged_outlives_a_killed_process(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    kept = context.Event()
    worker = context.Process(target=keep_and_hold, args=(path, kept))
    worker.start()
    assert kept.wait(60)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(PATIENCE)

    async def look() -> None:
        store = Proposals(SqliteDatabase(path))
        assert await store.commit("nonce-p1") == commit()
        assert await store.consume(commit(attempt="call-2")) is Consumed.REPLAY
        await store.close()

    asyncio.run(look())


def test_processes_that_come_first_at_once_make_one_store(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(4)
    workers = [context.Process(target=open_at_once, args=(path, ready)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert schema_version(path) == len(room.migrations("sqlite"))


async def test_a_process_that_keeps_the_lock_is_waited_for_in_time_only(path: Path) -> None:
    database = SqliteDatabase(path, timeout=PATIENCE)
    await database.check()
    assert database._connection is not None
    database._connection.set_busy_timeout(300)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked"):
        await Proposals(database).propose(proposal(), NOW)
    assert await Proposals(database).proposal("p1") is None
    other.execute("ROLLBACK")
    other.close()
    assert await Proposals(database).propose(proposal(), NOW) == proposal()
    await database.close()


async def test_a_file_that_another_process_is_just_opening_is_waited_for(path: Path) -> None:
    path.parent.mkdir(parents=True)
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE t (a); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    database = SqliteDatabase(path, timeout=PATIENCE)
    opening = asyncio.create_task(database.check())
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not opening.done()
    other.execute("ROLLBACK")
    other.close()
    await opening
    await database.close()


async def test_the_event_loop_does_not_wait_with_it(path: Path) -> None:
    database = SqliteDatabase(path, timeout=PATIENCE)
    await database.check()
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(Proposals(database).propose(proposal(), NOW))
    for _ in range(10):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    other.execute("ROLLBACK")
    other.close()
    assert await waiting == proposal()
    await database.close()


async def test_who_has_a_thread_to_wait_in_has_it_work_there(path: Path) -> None:
    database, threads = SqliteDatabase(path, in_thread=False), set[int]()

    async def work(connection: Transaction) -> Any:
        threads.add(threading.get_ident())
        return await connection.fetch("SELECT $2, $1, $2", 1, "é")

    assert await database.transaction(work) == [("é", 1, "é")]
    assert threads == {threading.get_ident()}
    await database.close()
    await database.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await database.transaction(work)


async def test_a_disk_that_never_answers_is_given_up_in_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, answers = SqliteDatabase(path, timeout=PATIENCE), threading.Event()
    await database.check()
    database._timeout = 0.1
    monkeypatch.setattr(room, "numbered", lambda sql: sql if answers.wait(PATIENCE) else "")
    async with asyncio.timeout(PATIENCE / 2):
        with pytest.raises(StoreUnavailableError, match="does not answer"):
            await database.fetch("SELECT 1")
    answers.set()
    await database.close()


async def test_work_that_waits_for_something_else_is_refused_and_undone(database: SqliteDatabase) -> None:
    async def sleepy(connection: Transaction) -> None:
        await connection.fetch("INSERT INTO tool_prompt_baselines VALUES ('s', 't', 'h', 1.0, '')")
        await asyncio.sleep(0)

    with pytest.raises(StoreUnavailableError, match="other than its database"):
        await database.transaction(sleepy)
    assert await Proposals(database).baselines() == []


async def test_a_full_disk_is_told_and_what_was_there_stays(database: SqliteDatabase) -> None:
    store = Proposals(database)
    await store.propose(proposal(), NOW)
    pages = (await database.fetch("PRAGMA page_count"))[0][0]
    await database.fetch(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreUnavailableError, match="full"):
        await store.propose(proposal("p2", tool="t", arguments="x" * 100_000), NOW)
    assert await store.proposals() == [proposal()]
    await database.fetch("PRAGMA max_page_count=100000")
    assert (await store.propose(proposal("p2", tool="t"), NOW)).proposal_id == "p2"


@pytest.mark.parametrize("content", [b"not a database, certainly not one" * 50, None], ids=["garbage", "folder"])
async def test_a_file_that_is_no_store_is_named_with_the_way_out(path: Path, content: bytes | None) -> None:
    path.parent.mkdir(parents=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    database = SqliteDatabase(path)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match=r"interlock\.db cannot be opened.*--state-dir"):
            await database.check()
    with pytest.raises(StoreUnavailableError, match=r"interlock\.db"):
        schema_version(path)
    if content is not None:
        path.unlink()
        await database.check()
    await database.close()


async def test_a_store_of_a_newer_version_is_refused(path: Path, database: SqliteDatabase) -> None:
    await database.check()
    await database.fetch("PRAGMA user_version=99")
    newer = SqliteDatabase(path)
    with pytest.raises(SchemaError, match=r"schema 99.*newer"):
        await newer.check()
    await newer.close()


async def test_a_store_of_an_older_version_is_brought_up_to_date(
    path: Path, database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Proposals(database).propose(proposal(), NOW)
    known = (*room.migrations("sqlite"), Migration(9, "more", "CREATE TABLE more (a)"))
    monkeypatch.setattr(room, "migrations", lambda _: known)
    newer = SqliteDatabase(path)
    assert await newer.fetch("SELECT count(*) FROM more") == [(0,)]
    assert await Proposals(newer).proposals() == [proposal()]
    await newer.close()
    assert schema_version(path) == len(known)


async def test_a_migration_that_fails_leaves_the_store_as_it_was(
    path: Path, database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.check()
    before, known = schema_version(path), room.migrations("sqlite")
    bad = Migration(9, "bad", "CREATE TABLE more (a); SELECT nonsense")
    monkeypatch.setattr(room, "migrations", lambda _: (*known, bad))
    newer = SqliteDatabase(path)
    with pytest.raises(StoreUnavailableError, match="nonsense"):
        await newer.check()
    await newer.close()
    assert schema_version(path) == before
    assert await database.fetch("SELECT name FROM sqlite_master WHERE name = 'more'") == []


def test_a_store_that_is_not_there_has_no_schema_and_is_not_made_by_looking(path: Path) -> None:
    assert schema_version(path) == 0
    assert not path.exists()


async def test_the_version_tells_of_every_commit_of_others(tmp_path: Path) -> None:
    reader = SqliteDatabase(tmp_path / "s.db", in_thread=False)
    writer = SqliteDatabase(tmp_path / "s.db")
    before = reader.version()
    assert reader.version() == before
    await writer.execute("INSERT INTO flow_agents (agent, last_number) VALUES ($1, $2) RETURNING agent", "a", 1)
    assert reader.version() != before
    assert writer.version() is None, "it would take its thread"
    await writer.close()
    await reader.close()
    with pytest.raises(StoreUnavailableError):
        reader.version()
