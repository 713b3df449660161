"""Stretches in processes of their own: cut whole, and answered in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit.chain_reader import StoreChains
from proxy.audit.event_store import Events
from proxy.audit.stretch_pool import open_pool
from proxy.audit.verify import Evidence, verify
from proxy.errors import StoreUnavailableError
from proxy.store.sqlite import STORE_FILE
from tests.support.trail_fixture import execute, move, signed, write


async def test_real_processes_find_what_is_there(
    tmp_path: Path, where: tuple[str | None, Path], events: Events
) -> None:
    write(tmp_path, range(1, 31))
    await move(tmp_path, events)
    with open_pool(where[0] or tmp_path / STORE_FILE, 30, size=8, processes=1) as pool:
        good = await verify(StoreChains(events), Evidence(signed(tmp_path)), fast=pool)
        assert (good.problems, good.checked) == ([], 30)
        await execute(events, "UPDATE events SET body = replace(body, 'deny', 'none') WHERE seq = 21")
        (bad,) = (await verify(StoreChains(events), Evidence(signed(tmp_path)), fast=pool)).problems
        assert (bad.seq, bad.what) == (21, "altered")


async def test_stretches_cover_everything_once_and_few_events_take_no_process(tmp_path: Path) -> None:
    with open_pool(tmp_path / "none.db", 10, size=4) as pool:
        cut = pool.cut("w", 3, 12, "00", {5: "a", 12: "b"})
        assert [(one.first, one.last, one.tip, dict(one.links)) for one in cut] == [
            (3, 6, "00", {5: "a"}),
            (7, 10, None, {}),
            (11, 12, None, {12: "b"}),
        ]
        with pytest.raises(StoreUnavailableError):
            await anext(pool.check(cut))
