"""The store of marks, on any database: what labelled results agents were given. Each method is one transaction."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from proxy.core.flows import Cleared, FlowEntry, FlowState, Mark
from proxy.store.packed_text import pack, unpack
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.store.database import Database, Row, Transaction
    from proxy.store.flow_windows import WindowFile

SQL: Final = Queries("flows")
MAX_WITH_PRINTS: Final = 1024  # marks of an agent that keep their fingerprints
MARK, CLEARED = "mark", "cleared"


class FlowMarks:
    """A `flows.FlowStore` on a database.

    Reads may go to a `reader`: another connection to the same database. The ends of what agents sent may be in a file
    of their own.
    """

    def __init__(self, database: Database, reader: Database | None = None, windows: WindowFile | None = None) -> None:
        self._database = database
        self._reader = reader or database
        self._windows = windows

    def version(self, *, windows: bool) -> object | None:
        # A connection does not tell of its own writes: only one that is for reading alone tells of all.
        if self._windows is None or self._reader is self._database or (marks := self._reader.version()) is None:
            return None
        return marks, self._windows.version() if windows else None

    async def add(self, marks: Sequence[Mark]) -> None:
        async def work(connection: Transaction) -> None:
            for agent in dict.fromkeys(mark.agent for mark in marks):
                await _insert(connection, agent, [_row(mark) for mark in marks if mark.agent == agent])

        await self._database.transaction(work)

    async def read(self, agent: str, after: int, now: float) -> FlowState:
        async def work(connection: Transaction) -> FlowState:
            rows = await connection.fetch(SQL["read_marks"], pack(agent), after, float(now))
            # An agent that was never given anything has sent nothing that matters.
            asked = (rows or after) and self._windows is None
            window = await connection.fetch(SQL["read_window"], pack(agent), float(now)) if asked else ()
            return FlowState([_entry(row) for row in rows], bytes(window[0][0]) if window else None)

        state = await self._reader.transaction(work, read_only=True)
        if self._windows is not None and (state.entries or after):
            return FlowState(state.entries, self._windows.read(agent, float(now)))
        return state

    async def put_window(self, agent: str, window: bytes, expires_at: float) -> None:
        if self._windows is not None:
            self._windows.put(agent, window, float(expires_at))
            return
        await self._database.execute(SQL["put_window"], pack(agent), window, float(expires_at))

    async def clear(self, agent: str, label: str | None, by: str, now: float) -> int:
        async def work(connection: Transaction) -> int:
            rows = await connection.fetch(SQL["read_marks"], pack(agent), 0, float(now))
            live = live_marks([_entry(row) for row in rows])
            cleared = [mark for mark in live if label is None or label in mark.labels]
            if cleared:
                # It has to outlive what it clears: a worker that reads the marks for the first time sees both.
                expires = max(mark.expires_at for mark in cleared)
                labels = json.dumps([] if label is None else [label])
                row = (CLEARED, pack(by), "", None, labels, None, None, b"", b"", True, float(now), float(expires))
                await _insert(connection, agent, [row])
            return len(cleared)

        return await self._database.transaction(work)

    async def agents(self, now: float) -> Sequence[str]:
        """Return the agents that have live marks."""
        return [unpack(row[0]) for row in await self._reader.fetch(SQL["marked_agents"], float(now))]

    async def close(self) -> None:
        """Release the reader and the file; the database is for others to close."""
        if self._windows is not None:
            self._windows.close()
        if self._reader is not self._database:
            await self._reader.close()

    async def sweep(self, now: float) -> int:
        async def work(connection: Transaction) -> int:
            await connection.fetch(SQL["delete_old_windows"], float(now))
            return len(await connection.fetch(SQL["delete_old_marks"], float(now)))

        if self._windows is not None:
            await asyncio.to_thread(self._windows.sweep, float(now))
        return await self._database.transaction(work)


def live_marks(entries: Sequence[FlowEntry]) -> list[Mark]:
    """Return the marks that nobody has cleared since."""
    marks: list[Mark] = []
    for entry in entries:
        if isinstance(entry, Mark):
            marks.append(entry)
        else:
            marks = [mark for mark in marks if entry.label is not None and entry.label not in mark.labels]
    return marks


async def _insert(connection: Transaction, agent: str, rows: Sequence[tuple[Any, ...]]) -> None:
    ((last,),) = await connection.fetch(SQL["next_number"], pack(agent), len(rows))
    for number, row in enumerate(rows, last - len(rows) + 1):
        await connection.fetch(SQL["insert_mark"], pack(agent), number, *row)
    # Now and then, not with every mark: nothing depends on the exact number.
    if last % 64 < len(rows) and last > MAX_WITH_PRINTS:
        await connection.fetch(SQL["strip_marks"], pack(agent), last - MAX_WITH_PRINTS, b"", False)


def _row(mark: Mark) -> tuple[Any, ...]:
    named = (mark.call_id, mark.server, mark.tool)
    scope = (mark.session, mark.trace)
    return (
        *(MARK, *(pack(name) if name is not None else None for name in named)),
        *(json.dumps(mark.labels), *(pack(name) if name is not None else None for name in scope)),
        *(mark.shingles, mark.values, mark.complete, float(mark.at), float(mark.expires_at)),
    )


def _entry(row: Row) -> FlowEntry:
    agent, number, kind, call_id, server, tool, labels, session, trace, runs, values, complete, at, expires = row
    words = json.loads(labels)
    if kind == CLEARED:
        return Cleared(number, words[0] if words else None)
    return Mark(
        agent=unpack(agent),
        call_id=unpack(call_id),
        server=unpack(server),
        tool=unpack(tool) if tool is not None else None,
        labels=tuple(words),
        at=at,
        expires_at=expires,
        session=unpack(session) if session is not None else None,
        trace=unpack(trace) if trace is not None else None,
        shingles=bytes(runs),
        values=bytes(values),
        complete=bool(complete),
        number=number,
    )
