"""`interlock audit stats`: calls, denials and secrets, summed up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from proxy.audit.reader import open_audit
from proxy.commands.audit.filter import read_filter
from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.terminal import Cell, count, format_json, print_table, printable
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.core.event import DayStats, DenialStats, Filter, SecretStats, Stats, ToolStats

TIMEOUT = 600.0  # seconds: sums go over every event that matches
EPILOG = "Example:  interlock audit stats --since 7d"
_COUNTED = frozenset({"calls", "denied", "errors", "denials", "found", "only in record", "mean ms", "max ms"})


@takes(read_filter, trail_settings)
def stats(
    where: Filter,
    settings: Settings,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many rows of each table at most.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Sum up: calls by tool and by day, denials by rule, secrets by tool, the slowest tools.

    --decision, --rule and --arg fit what was decided; times, errors and what was found in results are of events that
    say nothing of these.
    """

    async def sum_up() -> Stats:
        async with open_audit(settings.postgres, settings.state_dir, store_timeout=TIMEOUT) as audit:
            return await audit.stats(where)

    found = asyncio.run(sum_up())
    if as_json:
        _print_json(found)
    else:
        _print(found, limit)


def _print_json(found: Stats) -> None:
    calls, denied = _totals(found)
    summary = {"events": found.events, "first": found.first, "last": found.last, "calls": calls, "denied": denied}
    typer.echo(format_json({"kind": "summary", **summary}))
    groups: dict[str, Sequence[ToolStats | DenialStats | SecretStats | DayStats]] = {
        "tool": found.tools,
        "denial": found.denials,
        "secret": found.secrets,
        "day": found.days,
    }
    for kind, rows in groups.items():
        for row in rows:
            typer.echo(format_json({"kind": kind, **asdict(row)}))


def _print(found: Stats, limit: int) -> None:
    when = f" from {format_time(found.first)} to {format_time(found.last)} UTC"
    calls, denied = _totals(found)
    if not found.events:
        typer.echo("No event matches. Events are recorded when an agent calls through the proxy.")
        return
    typer.echo(f"{count(found.events, 'event')}{when}: {count(calls, 'tool call')}, {denied} denied.")
    slowest = [
        (one.tool, one.server, one.completed, f"{one.mean_ms or 0:.1f}", f"{one.max_ms or 0:.1f}")
        for one in sorted(found.tools, key=lambda one: -(one.mean_ms or 0))
        if one.mean_ms is not None
    ]
    tables: tuple[tuple[str, tuple[str, ...], list[tuple[Any, ...]]], ...] = (
        (
            "Calls by tool",
            ("tool", "server", "calls", "denied", "errors"),
            [(one.tool, one.server, one.calls, one.denied, one.errors) for one in found.tools],
        ),
        ("Denials by rule", ("rule", "reason", "denials"), [(d.rule, d.reason, d.count) for d in found.denials]),
        (
            "Secrets by tool",
            ("tool", "server", "detector", "found", "only in record"),
            [(s.tool, s.server, s.detector, s.count, s.only_in_record) for s in found.secrets],
        ),
        ("Slowest tools", ("tool", "server", "calls", "mean ms", "max ms"), slowest),
        ("By day (UTC)", ("day", "calls", "denied"), [(d.day, d.calls, d.denied) for d in found.days]),
    )
    for title, names, rows in tables:
        if rows:
            # Days are in order, so the newest are at the end; all other tables have the most first.
            newest_last = rows[-limit:] if title.startswith("By day") else rows[:limit]
            typer.echo()
            print_table(names, map(_cells, newest_last), right=_COUNTED, title=title)
            if len(rows) > limit:
                typer.echo(f"{count(len(rows) - limit, 'more row')}: --limit")


def _cells(row: Sequence[Any]) -> list[Cell]:
    return [value if isinstance(value, int) else printable(value) for value in row]


def _totals(found: Stats) -> tuple[int, int]:
    # By day, because the table of tools ends with the thousandth.
    return sum(day.calls for day in found.days), sum(day.denied for day in found.days)
