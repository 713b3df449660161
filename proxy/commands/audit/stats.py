"""`interlock audit stats`: calls, denials and secrets, summed up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from proxy.audit.event import DayStats, DenialStats, Filter, SecretStats, Stats, ToolStats
from proxy.audit.reader import open_audit
from proxy.commands.audit.filter import read_filter
from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.terminal import format_json, printable
from proxy.commands.time_format import format_time
from proxy.config import Settings

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
    typer.echo(json.dumps({"kind": "summary", **summary}))
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
    console = Console(markup=False, emoji=False, highlight=False)
    when = f" from {format_time(found.first)} to {format_time(found.last)} UTC" if found.events else ""
    calls, denied = _totals(found)
    console.print(f"{found.events} events{when}: {calls} tool calls, {denied} of them denied.")
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
            console.print()
            console.print(_table(title, names, newest_last))
            if len(rows) > limit:
                console.print(f"{len(rows) - limit} more rows: --limit", style="dim")


def _table(title: str, names: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False)
    for number, name in enumerate(names):
        counted = name in _COUNTED and number > 0
        table.add_column(name, overflow="fold", justify="right" if counted else "left")
    for row in rows:
        table.add_row(*(str(value) if isinstance(value, int) else printable(value) for value in row))
    return table


def _totals(found: Stats) -> tuple[int, int]:
    # By day, because the table of tools ends with the thousandth.
    return sum(day.calls for day in found.days), sum(day.denied for day in found.days)
