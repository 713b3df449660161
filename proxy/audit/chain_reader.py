"""The hash chains of the audit trail, by writer: of a store, of the local logs, of both, or of an exported file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import apsw

from proxy.audit import local_log_sql
from proxy.audit.local_log_files import log_states, open_reader
from proxy.core.event import Head, LogEntry
from proxy.core.event_columns import FLAGS, MAX_NAME, NUMBERS, TEXTS, VALUES, PoisonError, readable
from proxy.errors import ConfigError
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.audit.event_store import Events

SQL = Queries("chain")
EXPORTED_SQL = Queries("exported_events")
LIMIT = 1000
CLOSE = 1e-3  # seconds; a database stores microseconds
_LAST_NUMBER = (1 << 63) - 1
_VALUES = frozenset(VALUES)
COMPARED = ("kind", *TEXTS, *FLAGS, *NUMBERS, *VALUES, "result_size")  # in the order of the query `chain_page`

# An event's number, id and time. One of them is not enough: somebody who tampers may repeat a number, or an id.
type Position = tuple[int, str, float]
START: Position = (-(1 << 62), "", 0.0)  # before any number that somebody may put in


def behind(seq: int) -> Position:
    """Return the position behind every event up to number `seq`."""
    return seq + 1, "", 0.0


@dataclass(frozen=True, slots=True)
class ChainedEvent:
    """An event of a chain. `wrong_column`: a column of the store that says something else than the event's text."""

    entry: LogEntry
    event_id: str
    wrong_column: str | None = None
    time: float = 0.0

    @property
    def position(self) -> Position:
        return self.entry.seq or 0, self.event_id, self.time


class Chains(Protocol):
    """Chained events, to be read writer by writer."""

    async def heads(self) -> dict[str, Head | None]:
        """Return the writers, and how far each one's log says that it has come; None where there is no log."""

    async def page(self, writer: str, after: Position) -> list[ChainedEvent]:
        """Return up to LIMIT events of a writer behind a position, in order."""

    async def stored(self, writer: str) -> int:
        """Return the number of the last event of a writer that is in a store; 0 where there is none."""

    async def unchained(self) -> str | None:
        """Return the id of an event that belongs to no chain, if there is one."""


class StoreChains:
    def __init__(self, store: Events) -> None:
        self._database = store.database

    async def heads(self) -> dict[str, Head | None]:
        return {row[0]: None for row in await self._database.fetch(SQL["list_writers"])}

    async def page(self, writer: str, after: Position) -> list[ChainedEvent]:
        found = []
        for row in await self._database.fetch(SQL["chain_page"], writer, *after, LIMIT):
            body, name, seq, chain, event_id, time, *columns = row
            wrong = None if _agree(body, event_id, time, columns) else wrong_column(body, event_id, time, columns)
            found.append(ChainedEvent(LogEntry(body, name, seq, chain), event_id, wrong, time))
        return found

    async def stored(self, writer: str) -> int:
        ((last,),) = await self._database.fetch(SQL["last_stored"], writer)
        return last or 0

    async def unchained(self) -> str | None:
        found = await self._database.fetch(SQL["find_unchained"])
        return found[0][0] if found else None

    async def last_old(self, writer: str, before: float, future: float, step: float | None) -> Head | None:
        """Return the last event of a chain's beginning that happened before a time; None where its first did not.

        With a `step` the beginning is no longer than that many seconds.
        """
        if step is not None:
            rows = await self._database.fetch(SQL["first_time"], writer)
            before = min(before, *(time + step for (time,) in rows))
        # An event from the future says nothing of those before it: a clock was wrong when it was written.
        ((young,),) = await self._database.fetch(SQL["first_young"], writer, float(before), float(future))
        until = _LAST_NUMBER if young is None else young
        found = await self._database.fetch(SQL["last_old"], writer, until, float(before))
        return Head(writer, *found[0]) if found else None


class LogChains:
    """The chains of the events that are still in the local logs of a state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._paths: dict[str, Path] = {}

    async def heads(self) -> dict[str, Head | None]:
        states = log_states(self._state_dir)
        self._paths = {state.head.writer: path for path, state in states.items()}
        return {state.head.writer: state.head for state in states.values()}

    async def page(self, writer: str, after: Position) -> list[ChainedEvent]:
        """Return events, with those that the store rejected: they are links of the chain like all others."""
        if writer not in self._paths:
            return []
        with open_reader(self._paths[writer]) as connection:
            # A position without an id is in front of its number, which then counts.
            number = after[0] if after[1] else after[0] - 1
            found = local_log_sql.page(connection, writer, number, LIMIT, rejected=True)
        return [ChainedEvent(entry, event_id(entry.body)) for entry in found]

    async def stored(self, writer: str) -> int:  # noqa: ARG002  a log is no store
        return 0

    async def unchained(self) -> str | None:
        return None  # a log gives each event its link when it writes it


class AllChains:
    """The chains of a store and of the local logs that are shipped to it, as one."""

    def __init__(self, logs: LogChains, store: StoreChains) -> None:
        self._logs = logs
        self._store = store
        self._last: dict[str, LogEntry] = {}  # of each writer, the last event of the last page

    async def heads(self) -> dict[str, Head | None]:
        # The logs first, here and below: an event that is shipped in between is then seen twice, and not never.
        logs = await self._logs.heads()
        return {**await self._store.heads(), **logs}

    async def page(self, writer: str, after: Position) -> list[ChainedEvent]:
        logs = await self._logs.page(writer, after)
        store = await self._store.page(writer, after)
        if store and store[0].wrong_column is None and store[0].entry == self._last.get(writer):
            # It was read from the log, where its position has no time, and was shipped meanwhile: it comes only once.
            store = await self._store.page(writer, store[0].position)
        if len(store) == LIMIT:
            # What the log has beyond this page waits: the store may have events in between.
            logs = [event for event in logs if _number(event) < _number(store[-1])]
        known = {_number(event) for event in store}
        both = store + [event for event in logs if _number(event) not in known]
        page = sorted(both, key=lambda event: event.position)[:LIMIT]
        if page:
            self._last[writer] = page[-1].entry
        return page

    async def stored(self, writer: str) -> int:
        return await self._store.stored(writer)

    async def unchained(self) -> str | None:
        return await self._store.unchained()


class ExportedChains:
    """Exported events: one JSON object a line, with `writer`, `seq`, `chain` and the exact text as `body`."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError where it has no such lines."""
        self._table = apsw.Connection("")  # sorted on disk: an export may be larger than memory
        self._table.execute(EXPORTED_SQL["make_table"])
        self._loose: str | None = None
        try:
            with path.open(encoding="utf-8") as file:
                rows = (self._row(path, number, line) for number, line in enumerate(file, 1) if line.strip())
                self._table.execute("BEGIN")
                self._table.executemany(EXPORTED_SQL["insert_line"], rows)
                self._table.execute("COMMIT")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read ({error})") from error
        self._table.execute(EXPORTED_SQL["make_index"])

    def _row(self, path: Path, number: int, line: str) -> tuple[Any, ...]:
        try:
            value = json.loads(line)
            body, writer, seq, chain = (value[name] for name in ("body", "writer", "seq", "chain"))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ConfigError(
                f"{path}, line {number} is no exported event with body, writer, seq and chain ({error})"
            ) from error
        fits = isinstance(body, str) and isinstance(writer, str) and type(seq) is int and isinstance(chain, str)
        if not fits:
            self._loose = self._loose or event_id(str(body))
        return (str(writer), seq if fits else None, event_id(str(body)), chain if fits else None, str(body))

    async def heads(self) -> dict[str, Head | None]:
        rows: list[Any] = self._table.execute(EXPORTED_SQL["list_writers"]).fetchall()
        return dict.fromkeys(row[0] for row in rows)

    async def page(self, writer: str, after: Position) -> list[ChainedEvent]:
        rows: list[Any] = self._table.execute(EXPORTED_SQL["page"], (writer, *after, LIMIT)).fetchall()
        # The line's number in place of the time: it distinguishes two copies of one line.
        return [ChainedEvent(LogEntry(*row[:4]), row[4], time=row[5]) for row in rows]

    async def stored(self, writer: str) -> int:  # noqa: ARG002  a file is no store
        return 0

    async def unchained(self) -> str | None:
        return self._loose


def event_id(body: str) -> str:
    """Return the id of the event with this text; empty where it has none that can be read."""
    try:
        found = json.loads(body)["event_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def _number(event: ChainedEvent) -> int:
    return event.entry.seq or 0


def _agree(body: str, event_id: str, time: float, columns: Sequence[Any]) -> bool:
    """Return whether columns are plainly what the text says. False decides nothing: `wrong_column` does."""
    try:
        said = json.loads(body)
        if said["event_id"] != event_id or abs(time - said["time"]) > CLOSE:
            return False
        if type(said.get("jsonrpc_id")) is int:
            said["jsonrpc_id"] = str(said["jsonrpc_id"])
        return all(
            column == said.get(name)
            or (column is not None and name in _VALUES and _equal(json.loads(column), said[name]))
            for name, column in zip(COMPARED, columns, strict=True)
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False


def wrong_column(body: str, event_id: str, time: float, columns: Sequence[Any]) -> str | None:
    """Return the column that differs from what a store reads from the text; None where all agree."""
    try:
        said: dict[str, Any] = json.loads(readable(body))
    except PoisonError:
        return "body"
    if event_id != said["event_id"] or abs(time - said["time"]) > CLOSE:
        return "event_id or ts"
    said |= {name: str(said[name]) for name in TEXTS if type(said.get(name)) is int}
    if not said.get("proposal_id"):
        detail = said.get("detail")
        named = detail.get("proposal_id") if isinstance(detail, dict) else None
        said["proposal_id"] = json.dumps(named) if named is not None and not isinstance(named, str) else named
    pairs = zip(COMPARED, columns, strict=True)
    return next((name for name, column in pairs if not _same(name, column, said.get(name))), None)


def _same(name: str, column: Any, said: Any) -> bool:
    if name in VALUES:
        return _equal(None if column is None else json.loads(column), said)
    if column is None or said is None:
        return column is None and said is None
    if name in FLAGS:
        return bool(column) is said
    return bool(column == (said[:MAX_NAME] if isinstance(said, str) else said))


def _equal(one: Any, other: Any) -> bool:
    """Compare JSON values. Postgres writes 1.50 as 1.5 and so on; True equals 1 in Python, but not in JSON."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, (int, float)) and isinstance(other, (int, float)) and float(one) == float(other)
    return bool(one == other)
