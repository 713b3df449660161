"""The watcher puts halts in force, tells of changes, and drops nothing that it cannot read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.core.halts import Halt, HaltList
from proxy.errors import ConfigError, StoreUnavailableError
from proxy.gate.halts import ActiveHalts
from proxy.runtime.halt_watcher import HaltWatcher, read_halts
from proxy.store.halt_file import BY_HAND, MIRROR, HaltFile
from tests.support.timeouts import PATIENCE

ONE, CUT = Halt("h1", "why", "olga", 1.0, agent="bot"), Halt("h2", "all", "otto", 2.0, cut=True)


class Store:
    """A store in memory that may be away."""

    def __init__(self) -> None:
        self.list = HaltList("s", 0)
        self.away = False

    async def read(self) -> HaltList:
        if self.away:
            raise StoreUnavailableError("away")
        return self.list

    async def add(self, halts: Sequence[Halt]) -> HaltList:
        await self.read()
        self.list = HaltList("s", self.list.generation + 1, (*self.list.halts, *halts))
        return self.list

    async def remove(self, halt_ids: Sequence[str]) -> HaltList:
        left = tuple(halt for halt in self.list.halts if halt.halt_id not in halt_ids)
        self.list = HaltList("s", self.list.generation + 1, left)
        return self.list


class Seen:
    def __init__(self, folder: Path) -> None:
        self.halts, self.file, self.store = ActiveHalts(), HaltFile(folder), Store()
        self.changes: list[tuple[str, str]] = []
        self.cut: list[Halt] = []
        self.watcher = HaltWatcher(self.halts, self.file, self.store, lambda k, h: self.changes.append((k, h.halt_id)))
        self.watcher.on_cut = self.cut.append

    async def until(self, *ids: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while {halt.halt_id for halt in self.halts.halts} != set(ids):
                await asyncio.sleep(0.005)


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[Seen]:
    seen = Seen(folder)
    task = asyncio.create_task(seen.watcher.watch())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_the_store_and_the_files_say_is_in_force(tmp_path: Path) -> None:
    async with watching(tmp_path) as seen:
        await seen.store.add([ONE])
        seen.watcher.tell()
        await seen.until("h1")
        (tmp_path / BY_HAND).touch()
        await seen.until("h1", "by-hand")
        await seen.store.remove(["h1"])
        (tmp_path / BY_HAND).unlink()
        await seen.until()
    kinds = [("halted", "h1"), ("halted", "by-hand"), ("resumed", "h1"), ("resumed", "by-hand")]
    assert sorted(seen.changes) == sorted(kinds)
    assert seen.cut == []


async def test_what_is_halted_here_alone_is_told_to_the_store_when_it_is_back(tmp_path: Path) -> None:
    async with watching(tmp_path) as seen:
        seen.store.away = True
        seen.file.add(CUT)
        await seen.until("h2")
        assert seen.cut == [CUT]
        seen.store.away = False
        async with asyncio.timeout(PATIENCE):
            while not seen.store.list.halts:
                seen.watcher.tell()
                await asyncio.sleep(0.005)
        await seen.until("h2")
        assert seen.cut == [CUT]


async def test_a_store_that_goes_away_and_a_file_that_breaks_drop_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as seen:
        await seen.store.add([ONE])
        await seen.until("h1")
        seen.store.away = True
        (tmp_path / MIRROR).write_text("{broken")
        (tmp_path / BY_HAND).touch()
        await asyncio.sleep(0.2)
        assert [halt.halt_id for halt in seen.halts.halts] == ["h1"]
        assert seen.halts.active


def test_a_process_does_not_start_where_it_cannot_know_what_is_halted(tmp_path: Path) -> None:
    assert read_halts(tmp_path).halts == ()
    HaltFile(tmp_path).add(ONE)
    assert read_halts(tmp_path).halts == (ONE,)
    (tmp_path / MIRROR).write_text("{broken")
    with pytest.raises(ConfigError, match="cannot be known what is halted"):
        read_halts(tmp_path)
