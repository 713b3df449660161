"""Parquet files of events, in a folder or an object store: each is there whole or not at all, and what it should be.

A file is made in memory, written under its name in one step, and read back: only what comes back as it was sent counts,
whatever the storage says. Its name has the writer and the numbers of its first and last event, so that nobody needs to
open it to know what it holds.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from proxy.core.event import LogEntry
from proxy.core.event_columns import COLUMNS, FLAGS, NUMBERS
from proxy.sinks.role import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TYPES: dict[str, pa.DataType] = {
    "time": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
    "result_size": pa.int64(),
    **dict.fromkeys(FLAGS, pa.bool_()),
    **dict.fromkeys(NUMBERS, pa.float64()),
}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in (*COLUMNS, "writer", "seq", "chain", "body")])
_NAME = re.compile(r"(\d{12,19})-(\d{12,19})\.parquet")
_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """One file: its path below the folder, what it holds, and the hash of its bytes."""

    path: str
    writer: str
    first: int
    last: int
    rows: int
    bytes: int
    sha256: str


class ParquetFolder:
    """A folder: a path, or a URL that pyarrow.fs knows (s3://, gs://, hdfs://). Methods wait; they raise SinkError."""

    def __init__(self, place: str) -> None:
        self.place = place
        try:
            if "://" in place:
                self._files, self._root = pafs.FileSystem.from_uri(place)
            else:
                self._files, self._root = pafs.LocalFileSystem(), str(Path(place).expanduser().absolute())
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SinkError(f"{place} cannot be used as a folder of Parquet files: {error}") from error
        self._is_local = isinstance(self._files, pafs.LocalFileSystem)

    def ranges(self, writer: str) -> list[tuple[int, int]]:
        """Return the first and last numbers of a writer's files, in order."""
        names = (_NAME.fullmatch(name.rpartition("/")[2]) for name in self.names(f"writer={_checked(writer)}"))
        return sorted((int(match[1]), int(match[2])) for match in names if match)

    def names(self, below: str = "") -> list[str]:
        """Return the paths of all files, relative to the folder, or of those below a part of it."""
        root = f"{self._root}/{below}".rstrip("/")
        with _told(self.place):
            chosen = pafs.FileSelector(root, recursive=True, allow_not_found=True)
            return sorted(
                one.path[len(self._root) :].lstrip("/")
                for one in self._files.get_file_info(chosen)
                if one.type == pafs.FileType.File and not one.base_name.startswith(".")
            )

    def write_events(self, rows: Sequence[tuple[LogEntry, list[object]]]) -> ParquetFile:
        """Write the events of one writer, each with its columns, as one file."""
        first, last = rows[0][0], rows[-1][0]
        writer = _checked(first.writer or "")
        data = encode(rows)
        path = f"writer={writer}/{first.seq:012d}-{last.seq:012d}.parquet"
        self.write(path, data)
        return ParquetFile(path, writer, first.seq or 0, last.seq or 0, len(rows), len(data), sha256(data).hexdigest())

    def write(self, path: str, data: bytes) -> None:
        """Write a file in one step, and read it back."""
        whole = f"{self._root}/{path}"
        with _told(self.place):
            self._files.create_dir(whole.rpartition("/")[0], recursive=True)
            if self._is_local:
                _replace(Path(whole), data)
            else:  # an object appears when it is complete
                with self._files.open_output_stream(whole) as stream:
                    stream.write(data)
        if sha256(self.read(path)).digest() != sha256(data).digest():
            raise SinkError(f"{self.place}: {path} is not what was written; nothing counts as stored")

    def read(self, path: str) -> bytes:
        with _told(self.place), self._files.open_input_stream(f"{self._root}/{path}", compression=None) as stream:
            return bytes(stream.read())


def encode(rows: Sequence[tuple[LogEntry, list[object]]]) -> bytes:
    """Return the bytes of a file. The same events give the same bytes."""
    at = COLUMNS.index("time")
    table: list[list[object]] = [[*values, one.writer, one.seq, one.chain, one.body] for one, values in rows]
    for row in table:
        row[at] = round(float(str(row[at])) * 1_000_000)
    columns = zip(*table, strict=True)
    arrays = [
        pa.array(list(column), pa.int64()).cast(kind.type) if kind.name == "time" else pa.array(list(column), kind.type)
        for column, kind in zip(columns, SCHEMA, strict=True)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), sink, compression="zstd")
    return bytes(sink.getvalue())


def decode(data: bytes) -> list[LogEntry]:
    """Return the events of a file, in its order. Raises SinkError where it is no such file."""
    try:
        table = pq.read_table(pa.BufferReader(data), columns=["body", "writer", "seq", "chain"])
        values = [table.column(name).to_pylist() for name in ("body", "writer", "seq", "chain")]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise SinkError(f"it cannot be read as Parquet ({str(error).partition(chr(10))[0]})") from error
    return [LogEntry(*row) for row in zip(*values, strict=True)]


def _checked(writer: str) -> str:
    if not _WRITER.fullmatch(writer):
        raise SinkError(f"{writer!r} cannot be part of a path")
    return writer


def _replace(path: Path, data: bytes) -> None:
    """Write a file under another name first, so that a crash leaves none that is half written."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)  # the name, too
    finally:
        os.close(handle)


@contextlib.contextmanager
def _told(place: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise SinkError(f"{place}: {str(error).partition(chr(10))[0]}") from error
