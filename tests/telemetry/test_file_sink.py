from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from proxy.sinks.role import SinkError
from proxy.telemetry import file_sink
from proxy.telemetry.file_sink import FileSink, append
from proxy.telemetry.ocsf import ocsf_line
from tests.support.telemetry_events import CALL, PLAIN, entry

MANY = [entry(fields, number) for number, fields in enumerate(PLAIN.values(), 1)]


def sink(path: Path) -> FileSink:
    return FileSink(path, ocsf_line, with_arguments=False)


async def test_lines_are_appended_and_only_the_owner_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "ocsf.json"
    for _ in range(2):
        assert (await sink(file).write(MANY)).kept == len(MANY)
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == 2 * len(MANY)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_file_that_was_renamed_begins_anew(tmp_path: Path) -> None:
    file, made = tmp_path / "ocsf.json", sink(tmp_path / "ocsf.json")
    await made.write(MANY)
    file.rename(tmp_path / "ocsf.json.1")
    await made.write([entry(CALL, 1)])
    assert len(file.read_text().splitlines()) == 1


async def test_half_a_line_of_a_crash_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "ocsf.json"
    file.write_text('{"half')
    await sink(file).write([entry(CALL, 1)])
    half, whole = file.read_text().splitlines()
    assert half == '{"half'
    assert json.loads(whole)["metadata"]["uid"] == CALL["event_id"]


async def test_a_full_disk_leaves_no_half_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ocsf.json"
    await sink(file).write([entry(CALL, 1)])
    before = file.read_bytes()

    def full(handle: int, data: bytes) -> None:
        os.write(handle, data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_sink, "_write_all", full)
    with pytest.raises(SinkError, match="No space left"):
        await sink(file).write(MANY)
    assert file.read_bytes() == before


async def test_workers_that_append_at_once_mix_no_lines(tmp_path: Path) -> None:
    file, line = tmp_path / "x", b"y" * 70_000 + b"\n"
    await asyncio.gather(*(asyncio.to_thread(append, file, line * 3) for _ in range(8)))
    assert {len(one) for one in file.read_bytes().splitlines()} == {70_000}


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="No such file"):
        await sink(tmp_path / "none" / "x").write(MANY)
