"""What waits in the local logs to be shipped to the store, and why; read with or without touching the files."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

import apsw

from proxy.audit import local_log_sql, log_sinks
from proxy.audit.local_log_files import log_files, log_states, open_reader
from proxy.audit.transparency import read_problem
from proxy.errors import AuditUnavailableError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from proxy.audit.local_log_sql import LogState
    from proxy.audit.log_sinks import LogSink

BUSY_MS = 2_000
MAX_GAPS = 10


@dataclass(frozen=True, slots=True)
class SinkGap:
    """Events that a sink did not get, though the store did: how many, between which ids, why and since when."""

    count: int
    first_id: str | None
    last_id: str | None
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class SinkBacklog:
    """What waits for one sink, in all logs together."""

    name: str
    required: bool
    events: int
    lag_seconds: float | None
    lost: int  # how many events it did not get
    problem: str | None
    gaps: tuple[SinkGap, ...] = ()  # the last ones


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits: how many events, for how long the oldest has, how many were set aside, what is wrong."""

    events: int
    lag_seconds: float | None
    rejected: int
    problems: tuple[str, ...]
    sinks: tuple[SinkBacklog, ...] = ()
    transparency_problem: str | None = None  # why the transparency log takes no checkpoints


def read_backlog(state_dir: Path, now: float) -> Backlog:
    """Return the backlog of a state folder; a log that cannot be read is a problem in it, not an error."""
    try:
        backlog = sum_up(log_states(state_dir), now)
        return replace(backlog, sinks=read_sinks(state_dir, now), transparency_problem=read_problem(state_dir, now))
    except AuditUnavailableError as error:
        return Backlog(0, None, 0, (str(error),))


def read_sinks(state_dir: Path, now: float) -> tuple[SinkBacklog, ...]:
    """Return what waits for each sink of a state folder. Raises AuditUnavailableError."""
    found: dict[str, list[LogSink]] = {}
    gaps: dict[str, list[SinkGap]] = {}
    for path in log_files(state_dir):
        with open_reader(path) as connection:
            for state in log_sinks.states(connection):
                found.setdefault(state.name, []).append(state)
            for gap, at in log_sinks.gaps(connection, MAX_GAPS):
                gaps.setdefault(gap.sink, []).append(SinkGap(gap.count, gap.first_id, gap.last_id, gap.reason, at))
    return tuple(_sum_up_sink(states, gaps.get(name, []), now) for name, states in sorted(found.items()))


def _sum_up_sink(states: Sequence[LogSink], gaps: Sequence[SinkGap], now: float) -> SinkBacklog:
    lags = [now - _time(state.oldest) for state in states if state.oldest is not None]
    return SinkBacklog(
        name=states[0].name,
        required=any(state.keeps is None for state in states),
        events=sum(state.backlog for state in states),
        lag_seconds=max(0.0, *lags) if lags else None,
        lost=sum(state.lost for state in states),
        problem=next((state.problem for state in states if state.problem), None),
        gaps=tuple(sorted(gaps, key=lambda gap: -gap.at)[:MAX_GAPS]),
    )


def sum_up(states: Mapping[Path, LogState], now: float, problems: Sequence[str] = ()) -> Backlog:
    """Return the backlog of several logs together, with problems that are known beside."""
    lags = [now - _time(state.oldest) for state in states.values() if state.oldest is not None]
    return Backlog(
        events=sum(state.backlog for state in states.values()),
        lag_seconds=max(0.0, *lags) if lags else None,
        rejected=sum(state.rejected for state in states.values()),
        problems=(*problems, *(f"{path.name}: {state.problem}" for path, state in states.items() if state.problem)),
    )


def _time(body: str) -> float:
    try:
        return float(json.loads(body)["time"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0.0


@contextlib.contextmanager
def untouched(path: Path) -> Iterator[apsw.Connection]:
    """Open a SQLite file to read it and change nothing, not even its journal. Raises apsw.Error."""
    journal = path.with_name(f"{path.name}-wal")
    # Without a journal no process writes, and all is in the file itself: read it as one that nobody can change, since
    # SQLite would else make the journal's files to read it.
    alone = not journal.exists() or journal.stat().st_size == 0
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if alone else ''}"
    with contextlib.closing(apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)) as connection:
        connection.set_busy_timeout(BUSY_MS)
        yield connection


def read_backlog_untouched(state_dir: Path, now: float) -> Backlog:
    """Return the backlog of a state folder; its files are not touched, and not locked for long."""
    states: dict[Path, LogState] = {}
    problems: list[str] = []
    for path in log_files(state_dir):
        try:
            with untouched(path) as connection:
                state = local_log_sql.read_state(connection)
        except (apsw.Error, OSError, AuditUnavailableError) as error:
            problems.append(f"{path} cannot be read as an audit log ({error})")
            continue
        if state is not None:
            states[path] = state
    return sum_up(states, now, problems)


def stored_version(path: Path) -> int | None:
    """Return how many migrations a store's file has; None where there is none. Raises StoreUnavailableError."""
    if not path.exists():
        return None
    try:
        with untouched(path) as connection:
            return int(connection.pragma("user_version"))
    except (apsw.Error, OSError) as error:
        raise StoreUnavailableError(f"{path} cannot be read as a store ({error})") from error
