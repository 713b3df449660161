"""The Parquet sink knows by the names of its files what it has, and adds only what is missing."""

from __future__ import annotations

from pathlib import Path

from proxy.sinks.parquet_sink import open_sink
from proxy.sinks.settings import ParquetSettings
from tests.support.sink_worlds import WRITER, entries


async def test_files_are_named_by_what_they_hold(tmp_path: Path) -> None:
    sink = open_sink(ParquetSettings(kind="parquet", path=str(tmp_path), every=5))
    assert sink.linger == 5
    batch = entries(1, 30)
    await sink.write(batch[:10])
    await sink.write(batch[5:15])
    await sink.write(batch[20:30])  # 16 to 20 were let go
    await sink.write(batch)  # and come after all
    names = sorted(path.name for path in (tmp_path / f"writer={WRITER}").iterdir())
    assert names == [
        "000000000001-000000000010.parquet",
        "000000000011-000000000015.parquet",
        "000000000016-000000000020.parquet",
        "000000000021-000000000030.parquet",
    ]


async def test_an_event_of_no_chain_is_refused(tmp_path: Path) -> None:
    sink = open_sink(ParquetSettings(kind="parquet", path=str(tmp_path)))
    written = await sink.write([entries(1, 1)[0]._replace(writer=None, seq=None, chain=None)])
    assert (written.kept, list(written.poison)) == (0, [0])
