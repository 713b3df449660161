from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from proxy.errors import StoreUnavailableError
from proxy.fleet.bridge import StoreBridge
from proxy.store.fleet_store import FleetStore


def test_it_asks_from_code_that_has_an_event_loop_and_from_code_that_has_none(
    database_url: str, tmp_path: Path
) -> None:
    bridge = StoreBridge(database_url, tmp_path)

    async def inside() -> object:
        return bridge.run(lambda store: store.fleet())

    assert bridge.run(lambda store: store.fleet()) is None
    assert asyncio.run(inside()) is None
    bridge.close()
    assert bridge.run(lambda store: store.replicas()) == []
    bridge.close()
    assert not [one for one in threading.enumerate() if one.name == "interlock-fleet" and one is bridge._thread]


def test_a_store_that_does_not_answer_is_told_in_time(tmp_path: Path) -> None:
    bridge = StoreBridge("postgresql://127.0.0.1:1/x", tmp_path, seconds=0.05)

    async def never(_: FleetStore) -> None:
        await asyncio.Event().wait()

    with pytest.raises(StoreUnavailableError, match="no answer in time"):
        bridge.run(never)
    with pytest.raises(StoreUnavailableError, match="cannot be used"):
        bridge.run(lambda store: store.fleet())
    bridge.close()


def test_a_forked_process_makes_its_own(database_url: str, tmp_path: Path) -> None:
    bridge = StoreBridge(database_url, tmp_path)
    bridge.run(lambda store: store.fleet())
    bridge.close()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if bridge.run(lambda store: store.fleet()) is None else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bridge.run(lambda store: store.fleet()) is None
    bridge.close()
