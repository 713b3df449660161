"""Listening to a real Postgres: what is told, what is read again, and that nothing is missed or raised."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from proxy.store import postgres as postgres_module
from proxy.store import postgres_listen
from proxy.store.postgres import connect
from proxy.store.postgres_listen import MOST_PAYLOADS, PostgresListener
from tests.support.postgres import Postgres
from tests.support.postgres_lines import pgbouncer
from tests.support.system_needs import needs
from tests.support.timeouts import PATIENCE

CHANNEL = "interlock_test"


class Ears:
    """What a listener told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.reads = 0
        self._changed = asyncio.Event()

    def hear(self, payload: str) -> None:
        self.heard.append(payload)
        self._changed.set()

    def read(self) -> None:
        self.reads += 1
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@contextlib.asynccontextmanager
async def running(url: str, ears: Ears, turn: Path | None = None) -> AsyncIterator[PostgresListener]:
    listener = PostgresListener(url, {CHANNEL: ears.hear}, ears.read, turn=turn)
    task = asyncio.create_task(listener.run())
    try:
        yield listener
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def say(url: str, *payloads: str) -> None:
    connection = await connect(url)
    for payload in payloads:
        await connection.fetchval("SELECT pg_notify($1, $2)", CHANNEL, payload)
    await connection.close()


async def test_what_is_notified_is_told_once_for_each_payload(database_url: str) -> None:
    ears = Ears()
    async with running(database_url, ears) as listener:
        await ears.until(lambda: listener.listening)
        assert ears.reads >= 1  # what was changed before it listened
        await say(database_url, "a", "b")
        await ears.until(lambda: ears.heard == ["a", "b"])


async def test_a_storm_is_told_as_one_reading(database_url: str) -> None:
    ears = Ears()
    async with running(database_url, ears) as listener:
        await ears.until(lambda: listener.listening)
        before = ears.reads
        connection = await connect(database_url)
        # One transaction: all arrive together.
        sql = "SELECT pg_notify($1, n::text) FROM generate_series(1, 5000) n"
        await connection.fetch(sql, CHANNEL)
        await connection.close()
        await ears.until(lambda: ears.reads > before)
        assert len(ears.heard) <= MOST_PAYLOADS * 5
        await say(database_url, "after")
        await ears.until(lambda: "after" in ears.heard)


async def test_after_a_lost_connection_all_is_read_again(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_listen, "FIRST_PAUSE", 0.01)
    ears = Ears()
    async with running(database_url, ears) as listener:
        await ears.until(lambda: listener.listening)
        connection = await connect(database_url)
        ended = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        await connection.close()
        assert len(ended) == 1  # a listener holds one connection
        before = ears.reads
        await ears.until(lambda: ears.reads > before and listener.listening)
        await say(database_url, "again")
        await ears.until(lambda: "again" in ears.heard)


async def test_without_a_database_it_is_asked_every_second_and_nothing_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listen, "POLL_SECONDS", 0.01)
    ears = Ears()
    async with running(f"postgresql://x@/x?host={tmp_path}", ears) as listener:
        await ears.until(lambda: ears.reads >= 5)
        assert not listener.listening
        assert "cannot be used" in (listener.problem or "")


async def test_a_database_that_comes_back_is_listened_to_again(
    postgres: Postgres, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listen, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(postgres_listen, "POLL_SECONDS", 0.05)
    ears = Ears()
    async with running(database_url, ears) as listener:
        await ears.until(lambda: listener.listening)
        await asyncio.to_thread(postgres.halt)
        before = ears.reads
        try:
            await ears.until(lambda: listener.problem is not None and ears.reads > before)
        finally:
            await asyncio.to_thread(postgres.start)
        await ears.until(lambda: listener.listening)
        await say(database_url, "back")
        await ears.until(lambda: "back" in ears.heard)


@contextlib.asynccontextmanager
async def deaf(url: str) -> AsyncIterator[str]:
    """Pass everything to a Postgres and back but notifications, as some poolers do."""
    parts = urlsplit(url)
    socket = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"

    async def back(server: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        while True:
            head = await server.readexactly(5)
            rest = await server.readexactly(int.from_bytes(head[1:]) - 4)
            if head[:1] != b"A":
                to_client.write(head + rest)

    async def forth(client: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        while data := await client.read(1 << 16):
            to_server.write(data)

    async def serve(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_unix_connection(socket)
        tasks = [asyncio.create_task(back(server, to_client)), asyncio.create_task(forth(client, to_server))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        to_client.close()
        to_server.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"postgresql://postgres@127.0.0.1:{port}{parts.path}?sslmode=disable"


async def test_where_notifications_are_swallowed_it_is_asked_every_second(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listen, "POLL_SECONDS", 0.01)
    ears = Ears()
    async with deaf(database_url) as url:
        listener = PostgresListener(url, {CHANNEL: ears.hear}, ears.read, timeout=0.5)
        task = asyncio.create_task(listener.run())
        await ears.until(lambda: listener.problem is not None)
        before = ears.reads
        await ears.until(lambda: ears.reads > before + 3)
        assert "do not arrive" in (listener.problem or "")
        assert not listener.listening
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_behind_a_pooler_no_connection_is_kept(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_listen, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(postgres_module, "_POOLERS", {database_url})
    ears = Ears()
    async with running(database_url, ears) as listener:
        await ears.until(lambda: listener.problem is not None)
        before = ears.reads
        await ears.until(lambda: ears.reads > before + 3)
        assert "pooler" in (listener.problem or "")
        connection = await connect(database_url)
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        async with asyncio.timeout(PATIENCE):
            while await connection.fetchval(sql):
                await asyncio.sleep(0.01)
        await connection.close()


@needs("pgbouncer")
async def test_behind_pgbouncer_it_is_asked_every_second(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_listen, "POLL_SECONDS", 0.01)
    ears = Ears()
    with pgbouncer(database_url) as url:
        async with running(url, ears) as listener:
            await ears.until(lambda: "pooler" in (listener.problem or ""))
            before = ears.reads
            await ears.until(lambda: ears.reads > before + 3)


async def test_one_process_of_a_replica_listens_and_another_takes_over(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listen, "TURN_SECONDS", 0.01)
    turn, ears = tmp_path / "state" / "listen.lock", Ears()
    turn.parent.mkdir()
    with turn.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # another open file is to the kernel as another process
        async with running(database_url, ears, turn) as listener:
            await ears.until(lambda: ears.reads == 1)
            assert not listener.listening
            fcntl.flock(other, fcntl.LOCK_UN)
            await ears.until(lambda: listener.listening)
            await say(database_url, "mine")
            await ears.until(lambda: ears.heard == ["mine"])
    # Its end gives the turn back.
    with turn.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_what_a_callback_raises_ends_nothing(database_url: str) -> None:
    ears = Ears()

    def fail(payload: str) -> None:
        ears.hear(payload)
        raise RuntimeError(payload)

    listener = PostgresListener(database_url, {CHANNEL: fail}, ears.read)
    task = asyncio.create_task(listener.run())
    await ears.until(lambda: listener.listening)
    await say(database_url, "one")
    await ears.until(lambda: ears.heard == ["one"])
    await say(database_url, "two")
    await ears.until(lambda: ears.heard == ["one", "two"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
