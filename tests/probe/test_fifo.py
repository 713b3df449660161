"""A pipe in the file system is read while the loop runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from proxy.probe.fifo import reading


async def test_all_is_read_and_nothing_is_left_open(tmp_path: Path) -> None:
    path, told, ended = tmp_path / "pipe", [], asyncio.Event()
    os.mkfifo(path)

    def take(data: bytes) -> None:
        told.append(data)
        if not data:
            ended.set()

    before = sorted(Path("/proc/self/fd").iterdir())
    with reading(path, take):
        path.write_bytes(b"one\ntwo\n")
        await asyncio.wait_for(ended.wait(), 60)
    assert b"".join(told) == b"one\ntwo\n"
    assert sorted(Path("/proc/self/fd").iterdir()) == before
