"""What a worker knows of agents is read again exactly where the store has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag

from proxy.flows.outgoing import Outgoing
from proxy.gate.flow_recall import WINDOW_SECONDS, FlowRecall
from proxy.store.flow_store import FlowMarks
from proxy.store.flow_windows import WindowFile
from proxy.store.sqlite import SqliteDatabase
from tests.flows.test_history import PRINTER, mark

NOW = 50.0


class Worker:
    """A worker on a shared store; counts how often it reads."""

    def __init__(self, folder: Path, key: bytes = b"k" * 32) -> None:
        path = folder / "s.db"
        reader = SqliteDatabase(path, in_thread=False)
        self.marks = FlowMarks(SqliteDatabase(path, in_thread=False), reader, WindowFile(folder / "w.db"))
        self.now, self.reads = NOW, 0
        self.recall = FlowRecall(self.marks, key, PRINTER.key_id, lambda: self.now)
        read = self.marks.read

        async def counted(*given: Any) -> Any:
            self.reads += 1
            return await read(*given)

        self.marks.read = counted  # type: ignore[method-assign]

    async def sends(self, **tails: bytes) -> None:
        await self.recall.remember_sent("bot", [Outgoing((), tails, complete=True)])


async def test_the_store_is_read_once_until_somebody_writes(tmp_path: Path) -> None:
    one, other = Worker(tmp_path), Worker(tmp_path)
    for _ in range(3):
        history, tails = await one.recall.load("bot")
    assert (history.marks, tails, one.reads) == ((), {}, 1)
    await other.marks.add([mark()])
    for _ in range(3):
        history, _ = await one.recall.load("bot")
    assert [each.number for each in history.marks] == [1]
    assert one.reads <= 3
    # What the worker writes itself counts, too.
    await one.marks.add([mark(2)])
    assert [each.number for each in (await one.recall.load("bot"))[0].marks] == [1, 2]
    await other.marks.clear("bot", None, "olga", NOW)
    assert (await one.recall.load("bot"))[0].marks == ()


async def test_the_ends_of_what_was_sent_are_known_to_all_and_expire(tmp_path: Path) -> None:
    one, other = Worker(tmp_path), Worker(tmp_path)
    await one.marks.add([mark(expires_at=1e9)])
    await one.recall.load("bot")
    await one.sends(body=b"first")
    assert (await one.recall.load("bot"))[1] == {"body": b"first"}
    assert (await other.recall.load("bot"))[1] == {"body": b"first"}
    await other.sends(body=b"second")
    assert (await one.recall.load("bot"))[1] == {"body": b"second"}
    one.now += WINDOW_SECONDS
    assert (await one.recall.load("bot"))[1] == {}


async def test_marks_expire_without_a_change_of_the_store(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    await worker.marks.add([mark(expires_at=NOW + 5)])
    assert len((await worker.recall.load("bot"))[0].marks) == 1
    worker.now += 5
    assert (await worker.recall.load("bot"))[0].marks == ()


async def test_a_window_that_was_changed_is_no_window(tmp_path: Path) -> None:
    one, other = Worker(tmp_path), Worker(tmp_path)
    await one.marks.add([mark()])
    sealed = one.recall.sealed("bot", {"body": b"secret words"})
    assert b"secret" not in sealed
    await one.marks.put_window("bot", sealed[:-1] + bytes([sealed[-1] ^ 1]), 1e9)
    with pytest.raises(InvalidTag):
        await other.recall.load("bot")
