"""Parquet files: whole or not at all, read back before they count, the same bytes for the same events."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from proxy.core.event import LogEntry
from proxy.core.event_columns import columns
from proxy.sinks import parquet_files as module
from proxy.sinks.parquet_files import ParquetFolder, decode, encode
from proxy.sinks.role import SinkError
from tests.support.sink_worlds import WRITER, entries


def rows(first: int, last: int, **fields: object) -> list[tuple[LogEntry, list[object]]]:
    return [(entry, columns(entry.body)) for entry in entries(first, last, **fields)]


def test_a_file_comes_back_as_it_was_and_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    folder, made = ParquetFolder(str(tmp_path)), rows(1, 5, agent="a", total_ms=1.5, is_error=True, arguments={"a": 1})
    file = folder.write_events(made)
    assert decode(folder.read(file.path)) == [entry for entry, _ in made]
    assert encode(made) == folder.read(file.path)
    assert (file.first, file.last, file.rows) == (1, 5, 5)
    assert folder.ranges(WRITER) == [(1, 5)]


def test_duckdb_reads_its_columns(tmp_path: Path) -> None:
    ParquetFolder(str(tmp_path)).write_events(rows(1, 3, agent="a", total_ms=1.5, arguments={"a": 1}))
    query = (
        f"SELECT count(*), max(epoch_us(time)), any_value(arguments) FROM '{tmp_path}/*/*.parquet' WHERE agent = 'a'"
    )
    assert duckdb.sql(query).fetchall() == [(3, 1_763_000_003_500_000, '{"a":1}')]


def test_a_storage_that_lies_about_success_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ParquetFolder(str(tmp_path))
    monkeypatch.setattr(module, "_replace", lambda path, data: path.write_bytes(data[:-1]))
    with pytest.raises(SinkError, match="is not what was written"):
        folder.write_events(rows(1, 2))
    monkeypatch.setattr(module, "_replace", lambda path, data: None)
    with pytest.raises(SinkError, match="No such file"):
        folder.write_events(rows(3, 4))


def test_what_a_crash_left_half_written_counts_as_nothing(tmp_path: Path) -> None:
    folder = ParquetFolder(str(tmp_path))
    below = tmp_path / f"writer={WRITER}"
    below.mkdir()
    (below / ".000000000001-000000000005.parquet.part").write_bytes(b"PAR1")
    assert (folder.ranges(WRITER), folder.names()) == ([], [])
    folder.write_events(rows(1, 5))
    assert folder.ranges(WRITER) == [(1, 5)]


def test_a_writer_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = ParquetFolder(str(tmp_path / "in"))
    entry = entries(1, 1)[0]._replace(writer="../out")
    with pytest.raises(SinkError, match="cannot be part of a path"):
        folder.write_events([(entry, columns(entry.body))])


@pytest.mark.parametrize("place", ["gopher://x", "/dev/null/x"])
def test_a_place_that_cannot_be_used_is_told(place: str) -> None:
    with pytest.raises(SinkError, match=place):
        ParquetFolder(place).write("a/b", b"x")


def test_what_is_no_parquet_is_told() -> None:
    with pytest.raises(SinkError, match="cannot be read as Parquet"):
        decode(b"PAR1 no PAR1")
