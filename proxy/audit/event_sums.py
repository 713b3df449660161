"""Sums over the events in Postgres: of whole hours from the tables that are kept of them, of the rest from the events.

A report over a week reads a few thousand sums in place of millions of events. Every hour that holds an event which does
not count is summed up from its events, so that the result is the same as that of reading them all.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import TYPE_CHECKING, Any

from proxy.core.event import DayStats, DenialStats, Filter, SecretStats, Stats, ToolStats
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from proxy.store.database import Row, Transaction

    type CountRow = DayStats | DenialStats | SecretStats

SQL = Queries("events_postgres")

HOUR = 3600.0
MOST_HOURS = 100  # that are summed up one by one; where more are not whole, all events are read
MOST_ROWS = 20_000  # of one table, before it is added to others
_NEVER, _EVER = -2e9, 9e9  # before the first event, and after the last
_TIMES = frozenset({"since", "until", "without"})


def by_hours(where: Filter) -> bool:
    """Return whether nothing but time chooses the events: the sums know of little else."""
    plain = Filter()
    return all(
        getattr(where, field.name) == getattr(plain, field.name)
        for field in dataclasses.fields(Filter)
        if field.name not in _TIMES
    )


def edges(where: Filter, spoilt: Sequence[float]) -> tuple[float, float, list[Filter]]:
    """Return from when to when whole hours count, and what is to be summed up from events beside them.

    `spoilt` are hours with events that do not count.
    """
    first = _NEVER if where.since is None else math.ceil(where.since / HOUR) * HOUR
    last = _EVER if where.until is None else math.floor(where.until / HOUR) * HOUR
    if first >= last:
        return first, first, [where]
    found = [dataclasses.replace(where, since=hour, until=hour + HOUR) for hour in spoilt if first <= hour < last]
    if where.since is not None and where.since < first:
        found.append(dataclasses.replace(where, until=first))
    if where.until is not None and where.until > last:
        found.append(dataclasses.replace(where, since=last))
    return first, last, found


async def whole_hours(connection: Transaction, first: float, last: float, spoilt: Sequence[float]) -> Stats:
    """Return the sums of the whole hours between two times."""

    async def rows(name: str, *more: int) -> Sequence[Row]:
        return await connection.fetch(SQL[name], first, last, list(spoilt), *more)

    ((count, begun, ended),) = await rows("sums_span")
    return Stats(
        events=count or 0,
        first=begun,
        last=ended,
        tools=[ToolStats(*row) for row in await rows("sums_tools", MOST_ROWS)],
        denials=[DenialStats(*row) for row in await rows("sums_denials", MOST_ROWS)],
        secrets=[SecretStats(*row) for row in await rows("sums_secrets", MOST_ROWS)],
        days=[DayStats(*row) for row in await rows("sums_days")],
    )


def cut_to(stats: Stats, most: int) -> Stats:
    """Return the same with so many rows of each table at most."""
    tools, denials, secrets = stats.tools[:most], stats.denials[:most], stats.secrets[:most]
    return dataclasses.replace(stats, tools=tools, denials=denials, secrets=secrets)


def add_stats(parts: Sequence[Stats]) -> Stats:
    """Return the sum of what several stores say; its order is the same whatever the databases sort by."""
    return Stats(
        events=sum(one.events for one in parts),
        first=min((one.first for one in parts if one.first is not None), default=None),
        last=max((one.last for one in parts if one.last is not None), default=None),
        tools=_most_first(_grouped([row for one in parts for row in one.tools], 2, _add_tools), 2),
        denials=_most_first(_grouped([row for one in parts for row in one.denials], 2, _add_counts(2)), 2),
        secrets=_most_first(_grouped([row for one in parts for row in one.secrets], 3, _add_counts(3)), 3),
        days=sorted(_grouped([row for one in parts for row in one.days], 1, _add_counts(1)), key=lambda row: row.day),
    )


def _grouped[R: CountRow | ToolStats](rows: Iterable[R], keys: int, add: Callable[[R, R], R]) -> list[R]:
    """Add up the rows whose first fields, as many as `keys`, are the same."""
    found: dict[tuple[Any, ...], R] = {}
    for row in rows:
        key = dataclasses.astuple(row)[:keys]
        found[key] = add(found[key], row) if key in found else row
    return list(found.values())


def _add_counts[R: CountRow](keys: int) -> Callable[[R, R], R]:
    def add(one: R, other: R) -> R:
        values, others = dataclasses.astuple(one), dataclasses.astuple(other)
        return type(one)(*values[:keys], *map(operator.add, values[keys:], others[keys:]))

    return add


def _add_tools(one: ToolStats, other: ToolStats) -> ToolStats:
    completed = one.completed + other.completed
    total = sum(each.completed * (each.mean_ms or 0) for each in (one, other))
    timed = [each.max_ms for each in (one, other) if each.max_ms is not None]
    return ToolStats(
        server=one.server,
        tool=one.tool,
        calls=one.calls + other.calls,
        denied=one.denied + other.denied,
        errors=one.errors + other.errors,
        completed=completed,
        mean_ms=total / completed if timed else None,
        max_ms=max(timed, default=None),
    )


def _most_first[R: CountRow | ToolStats](rows: list[R], keys: int) -> list[R]:
    """Sort by the count behind the keys, then by the keys, None last."""

    def order(row: R) -> tuple[Any, ...]:
        values = dataclasses.astuple(row)
        return -values[keys], *((name is None, name or "") for name in values[:keys])

    return sorted(rows, key=order)
