"""Where chained events are read from: a store, the local logs, both together, or a file of exported ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import apsw

from proxy.audit import chained, local_log_sql
from proxy.audit.chained import Chained
from proxy.audit.event import Entry
from proxy.audit.local_log_files import log_states, open_reader
from proxy.errors import ConfigError
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from pathlib import Path

    from proxy.audit.chained import Place
    from proxy.audit.hash_chain import Head
    from proxy.store.event_store import Events

SQL = Queries("exported_events")
LIMIT = 1000
START: Place = (0, "", 0.0)


class Trail(Protocol):
    """Chained events, to be read writer by writer."""

    async def heads(self) -> dict[str, Head | None]:
        """Return the writers there are, and where their logs say they are, where there are logs."""
        ...

    async def page(self, writer: str, after: Place) -> list[Chained]:
        """Return up to LIMIT events of a writer behind a place, in order."""
        ...

    async def unchained(self) -> str | None:
        """Return the id of an event that belongs to no chain, if there is one."""
        ...


class StoreTrail:
    """The events of a store."""

    def __init__(self, store: Events) -> None:
        self._store = store

    async def heads(self) -> dict[str, Head | None]:
        """Return the writers."""
        return dict.fromkeys(await chained.writers(self._store))

    async def page(self, writer: str, after: Place) -> list[Chained]:
        """Return events."""
        return await chained.page(self._store, writer, after, LIMIT)

    async def unchained(self) -> str | None:
        """Return a loose event."""
        return await chained.unchained(self._store)


class LogsTrail:
    """The events that are still in the local logs of a state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._paths: dict[str, Path] = {}

    async def heads(self) -> dict[str, Head | None]:
        """Return the writers and where they are."""
        states = log_states(self._state_dir)
        self._paths = {state.head.writer: path for path, state in states.items()}
        return {state.head.writer: state.head for state in states.values()}

    async def page(self, writer: str, after: Place) -> list[Chained]:
        """Return events, those that were set aside among them."""
        if writer not in self._paths:
            return []
        with open_reader(self._paths[writer]) as connection:
            found = local_log_sql.page(connection, writer, after[0], LIMIT, rejected=True)
        return [Chained(entry, event_id(entry.body)) for entry in found]

    async def unchained(self) -> str | None:
        """Return nothing: a log's events are all chained."""
        return None


class WholeTrail:
    """A store and the local logs that fill it, as one."""

    def __init__(self, logs: LogsTrail, store: StoreTrail) -> None:
        self._logs = logs
        self._store = store
        self._ahead: dict[str, list[Chained]] = {}

    async def heads(self) -> dict[str, Head | None]:
        """Return the writers of both."""
        # The logs first, here and below: events go from there to the store while this reads.
        logs = await self._logs.heads()
        return {**await self._store.heads(), **logs}

    async def page(self, writer: str, after: Place) -> list[Chained]:
        """Return events of both, each once."""
        logs = await self._logs.page(writer, after)
        store = await self._store.page(writer, after)
        last = _number(store[-1]) if store else after[0]
        if len(store) == LIMIT:
            logs = [event for event in logs if _number(event) < last]
        known = {_number(event) for event in store}
        both = store + [event for event in logs if _number(event) not in known]
        return sorted(both, key=lambda event: event.place)[:LIMIT]

    async def unchained(self) -> str | None:
        """Return a loose event of the store."""
        return await self._store.unchained()


class FileTrail:
    """Exported events: one JSON object a line, with `writer`, `seq`, `chain` and the exact text as `body`."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError where it has no such lines."""
        self._table = apsw.Connection("")  # sorted on disk: an export may be larger than memory
        self._table.execute(SQL["make_table"])
        self._loose: str | None = None
        try:
            with path.open(encoding="utf-8") as file:
                rows = (self._row(path, number, line) for number, line in enumerate(file, 1) if line.strip())
                self._table.execute("BEGIN")
                self._table.executemany(SQL["insert_line"], rows)
                self._table.execute("COMMIT")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read ({error})") from error
        self._table.execute(SQL["make_index"])

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
        """Return the writers."""
        rows: list[Any] = self._table.execute(SQL["list_writers"]).fetchall()
        return dict.fromkeys(row[0] for row in rows)

    async def page(self, writer: str, after: Place) -> list[Chained]:
        """Return events."""
        rows: list[Any] = self._table.execute(SQL["page"], (writer, *after, LIMIT)).fetchall()
        return [Chained(Entry(*row[:4]), row[4], time=row[5]) for row in rows]

    async def unchained(self) -> str | None:
        """Return a line that names no place in a chain."""
        return self._loose


def event_id(body: str) -> str:
    """Return the id of the event with this text; empty where it has none that can be read."""
    try:
        found = json.loads(body)["event_id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def _number(event: Chained) -> int:
    return event.entry.seq or 0
