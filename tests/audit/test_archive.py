"""An archive is written before anything is deleted, can be verified afterwards, and hides no hole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from proxy.audit.archive import Archived, ArchivedChains, write_archive
from proxy.audit.chain_reader import StoreChains
from proxy.audit.event_store import Events
from proxy.audit.retention import prune
from proxy.audit.verify import Evidence, Report
from proxy.audit.verify import verify as verify_chains
from proxy.core.event import Head
from proxy.errors import AuditUnavailableError, ConfigError
from proxy.sinks import parquet_files
from proxy.sinks.parquet_files import ParquetFolder
from proxy.sinks.role import SinkError
from tests.support.trail_fixture import START, event, execute, move, sign, signed, signer, verified, write

MIDDLE = START + 30


@pytest.fixture
async def trail(tmp_path: Path, events: Events) -> Events:
    write(tmp_path, range(60), arguments={"a": "\0x", "b": [1.5, None]}, agent="a")
    sign(tmp_path)
    await move(tmp_path, events)
    return events


async def prune_to(tmp_path: Path, events: Events, place: Path) -> int:
    async def keep(heads: Sequence[Head]) -> Archived:
        return await write_archive(StoreChains(events), heads, ParquetFolder(str(place)), 1.0, lines(tmp_path))

    return (await prune(events, MIDDLE, signer(tmp_path), archive=keep, clock=lambda: START + 100)).gone


def lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "checkpoints" / "checkpoints.jsonl").read_text().splitlines()


async def verify_archive(tmp_path: Path, place: Path) -> Report:
    chains = ArchivedChains(ParquetFolder(str(place)))
    evidence, anchors = chains.evidence(Evidence(signed(tmp_path)))
    return await verify_chains(chains, evidence, anchors=anchors)


async def test_what_was_archived_and_pruned_verifies_and_so_does_the_rest(tmp_path: Path, trail: Events) -> None:
    place = tmp_path / "archive"
    assert await prune_to(tmp_path, trail, place) == 30
    report = await verify_archive(tmp_path, place)
    assert (report.problems, report.checked, report.unsigned) == ([], 30, [])
    assert (await verified(tmp_path, trail)).problems == []
    rows = duckdb.sql(f"SELECT count(*), min(seq), max(seq), any_value(agent) FROM '{place}/*/*.parquet'").fetchall()
    assert rows == [(30, 1, 30, "a")]


async def test_a_second_archive_goes_on_where_the_first_ended(tmp_path: Path, trail: Events) -> None:
    place = tmp_path / "archive"
    await prune_to(tmp_path, trail, place)
    heads = [one for one in [await StoreChains(trail).last_old(next(iter(signed(tmp_path))), 1e11, 1e11, None)] if one]
    done = await write_archive(StoreChains(trail), heads, ParquetFolder(str(place)), 2.0)
    assert (done.events, done.files) == (30, 1)
    report = await verify_archive(tmp_path, place)
    assert (report.problems, report.checked) == ([], 60)


@pytest.mark.parametrize("how", ["missing", "changed", "swapped", "rewritten", "manifest"])
async def test_an_archive_that_was_changed_is_found_out(tmp_path: Path, trail: Events, how: str) -> None:
    place = tmp_path / "archive"
    await prune_to(tmp_path, trail, place)
    (file,) = place.glob("*/*.parquet")
    (manifest,) = place.glob("manifest-*.json")
    if how == "missing":
        file.unlink()
    elif how == "changed":
        file.write_bytes(file.read_bytes()[:-9] + b"000000000")
    elif how == "manifest":
        manifest.unlink()
    else:  # by somebody who writes a manifest that fits
        folder = ParquetFolder(str(place))
        entries = parquet_files.decode(file.read_bytes())
        kept = (
            entries[:20]
            if how == "swapped"
            else [*entries[:5], entries[5]._replace(body=entries[6].body), *entries[6:]]
        )
        made = folder.write_events([(one, parquet_files.COLUMNS and columns(one.body)) for one in kept])
        said = json.loads(manifest.read_text())
        said["files"] = [{name: getattr(made, name) for name in made.__slots__}]
        if how == "swapped":
            said["heads"] = [{"writer": made.writer, "seq": 20, "hash": kept[-1].chain}]
            file.unlink()
        manifest.write_text(json.dumps(said))
    if how in ("missing", "changed", "manifest"):
        with pytest.raises(ConfigError):
            await verify_archive(tmp_path, place)
    else:
        (problem,) = (await verify_archive(tmp_path, place)).problems
        assert problem.what == {"swapped": "missing", "rewritten": "altered"}[how]


def columns(body: str) -> list[object]:
    from proxy.core.event_columns import columns as read

    return read(body)


async def test_nothing_is_deleted_where_the_archive_cannot_be_written(
    tmp_path: Path, trail: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lies(path: Path, data: bytes) -> None:
        path.write_bytes(data[: len(data) // 2])

    monkeypatch.setattr(parquet_files, "_replace", lies)
    with pytest.raises(AuditUnavailableError, match="nothing was pruned: the archive could not be written"):
        await prune_to(tmp_path, trail, tmp_path / "archive")
    assert (await verified(tmp_path, trail)).checked == 60


async def test_an_event_of_no_chain_is_not_deleted_unseen(tmp_path: Path, trail: Events) -> None:
    await execute(trail, "UPDATE events SET chain = NULL, seq = NULL, writer = NULL WHERE event_id = 'e00059'")
    with pytest.raises(AuditUnavailableError, match="e00059 is of no chain"):
        await prune_to(tmp_path, trail, tmp_path / "archive")


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no manifest"):
        ArchivedChains(ParquetFolder(str(tmp_path)))
    (tmp_path / "manifest-1.json").write_text('{"version": 1, "files": [{}], "heads": [], "checkpoints": []}')
    with pytest.raises(ConfigError, match="has no manifest"):
        ArchivedChains(ParquetFolder(str(tmp_path)))
    with pytest.raises(SinkError):
        ParquetFolder(str(tmp_path)).read("no")
    assert event(1).event_id == "e00001"
