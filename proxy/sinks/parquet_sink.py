"""A sink on Parquet files: one file for each batch, named by its writer and its numbers.

What is there already is known by the names, so that a batch that comes again, cut otherwise, adds only what is missing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from proxy.core.event import Written
from proxy.core.event_columns import PoisonError, columns
from proxy.sinks.parquet_files import ParquetFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.core.event import LogEntry
    from proxy.sinks.settings import ParquetSettings

type Row = tuple[LogEntry, list[object]]


class ParquetSink:
    """A Sink on a folder."""

    batch = 50_000

    def __init__(self, settings: ParquetSettings) -> None:
        self.linger = settings.every
        self._folder: ParquetFolder | None = None
        self._place = settings.path
        self._known: dict[str, list[tuple[int, int]]] = {}

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        try:
            return await asyncio.to_thread(self._write, entries)
        except BaseException:
            self._known.clear()  # what is there must be looked up again
            raise

    async def close(self) -> None:
        self._known.clear()

    def _write(self, entries: Sequence[LogEntry]) -> Written:
        folder = self._folder = self._folder or ParquetFolder(self._place)
        poison: dict[int, str] = {}
        rows: list[Row | None] = []
        for index, entry in enumerate(entries):
            try:
                rows.append((entry, _columns(entry)))
            except PoisonError as error:
                poison[index] = str(error)
                rows.append(None)
        for writer in {entry.writer for entry in entries if entry.writer is not None}:
            known = self._known.get(writer) or folder.ranges(writer)
            for run in _runs(entries, rows, writer, known):
                file = folder.write_events(run)
                known.append((file.first, file.last))
            self._known[writer] = known
        return Written(len(entries) - len(poison), poison)


def open_sink(settings: ParquetSettings) -> ParquetSink:
    return ParquetSink(settings)


def _columns(entry: LogEntry) -> list[object]:
    if entry.writer is None or entry.seq is None or entry.chain is None:
        raise PoisonError("it is of no chain")
    return columns(entry.body, entry.columns and list(entry.columns))


def _runs(
    entries: Sequence[LogEntry], rows: Sequence[Row | None], writer: str, known: Sequence[tuple[int, int]]
) -> Iterator[list[Row]]:
    """Yield what is not there yet, each time without a gap but for events that cannot be taken."""
    run: list[Row] = []
    before: int | None = None
    for entry, row in zip(entries, rows, strict=True):
        if entry.writer != writer or entry.seq is None:
            continue
        there = any(first <= entry.seq <= last for first, last in known)
        if run and (there or before is None or entry.seq != before + 1):
            yield run
            run = []
        before = entry.seq
        if row is not None and not there:
            run.append(row)
    if run:
        yield run
