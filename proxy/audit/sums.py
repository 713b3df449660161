"""Adding up what several stores say of their events. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from proxy.audit.event import DayStats, DenialStats, SecretStats, Stats, ToolStats

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTHING = Stats(events=0, first=None, last=None, tools=[], denials=[], secrets=[], days=[])


def add(stats: Sequence[Stats]) -> Stats:
    """Sum up; the order is the same whatever the databases sort by."""
    if not stats:
        return _NOTHING
    return Stats(
        events=sum(one.events for one in stats),
        first=min((one.first for one in stats if one.first is not None), default=None),
        last=max((one.last for one in stats if one.last is not None), default=None),
        tools=_tools([tool for one in stats for tool in one.tools]),
        denials=_denials([denial for one in stats for denial in one.denials]),
        secrets=_secrets([secret for one in stats for secret in one.secrets]),
        days=_days([day for one in stats for day in one.days]),
    )


def _denials(rows: Sequence[DenialStats]) -> list[DenialStats]:
    summed: Counter[tuple[str | None, str | None]] = Counter()
    for row in rows:
        summed[row.reason, row.rule] += row.count
    return [DenialStats(reason, rule, count) for (reason, rule), count in _most(summed)]


def _secrets(rows: Sequence[SecretStats]) -> list[SecretStats]:
    summed: Counter[tuple[str | None, str | None, str | None]] = Counter()
    only: Counter[tuple[str | None, str | None, str | None]] = Counter()
    for row in rows:
        summed[row.server, row.tool, row.detector] += row.count
        only[row.server, row.tool, row.detector] += row.only_in_record
    return [SecretStats(*key, count, only[key]) for key, count in _most(summed)]


def _most[K: tuple[str | None, ...]](summed: Counter[K]) -> list[tuple[K, int]]:
    return sorted(summed.items(), key=lambda item: (-item[1], *map(_word, item[0])))


def _tools(rows: Sequence[ToolStats]) -> list[ToolStats]:
    found: dict[tuple[str | None, str | None], ToolStats] = {}
    for row in rows:
        key = (row.server, row.tool)
        found[key] = _both(found[key], row) if key in found else row
    return sorted(found.values(), key=lambda tool: (-tool.calls, _word(tool.server), _word(tool.tool)))


def _both(one: ToolStats, other: ToolStats) -> ToolStats:
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


def _days(rows: Sequence[DayStats]) -> list[DayStats]:
    calls: Counter[str] = Counter()
    denied: Counter[str] = Counter()
    for row in rows:
        calls[row.day] += row.calls
        denied[row.day] += row.denied
    return [DayStats(day, calls[day], denied[day]) for day in sorted(calls)]


def _word(value: str | None) -> tuple[bool, str]:
    return value is None, value or ""
