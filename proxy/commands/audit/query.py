"""`interlock audit query | show`: single calls, and what happened in them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.audit.event import CallRecord, Filter
from proxy.audit.reader import AuditReader, open_audit
from proxy.commands.audit.filter import read_filter
from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.terminal import format_json, printable
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.errors import ConfigError

PAGE = 1000
MIN_PREFIX = 8
SHOWN_IDS = 5
QUERY_EPILOG = """
Examples:

  interlock audit query --since 7d --decision deny

  interlock audit query --tool 'read_*' --arg path=/etc/passwd --json
"""
SHOW_EPILOG = "Example:  interlock audit show 0198c0de-7d31-7c52-a1b0-5e0d9f1c2a44"
_FIRST = ("event_id", "kind", "time")
COLOURS = {"deny": "red", "propose": "yellow", "allow": "green"}
UNBOUNDED = 10_000
SHORT_ID, SHORT_TIME = 13, 19
# What gives way to the rest on a narrow terminal, in this order. `--json` has everything.
LEAST_TELLING = ("agent", "ms", "outcome", "server")

type Column = Callable[[CallRecord], str | Text]
COLUMNS: dict[str, Column] = {
    "time (UTC)": lambda call: format_time(call.time),
    "agent": lambda call: printable(call.agent),
    "server": lambda call: printable(call.server),
    "tool": lambda call: printable(call.tool),
    "decision": lambda call: Text(printable(call.decision), COLOURS.get(call.decision or "", "")),
    "reason": lambda call: printable(call.reason),
    "rule": lambda call: printable(call.rule),
    "outcome": lambda call: Text(printable(call.outcome), "red" if call.is_error else ""),
    "ms": lambda call: "" if call.total_ms is None else f"{call.total_ms:.1f}",
    "call": lambda call: printable(call.call_id),
}
SHORTER: dict[str, Column] = {
    "time (UTC)": lambda call: format_time(call.time)[:SHORT_TIME],
    "call": lambda call: printable(call.call_id)[:SHORT_ID],
}


@takes(read_filter, trail_settings)
def query(
    where: Filter,
    settings: Settings,
    *,
    limit: Annotated[int, typer.Option(min=1, help="How many calls at most, the newest.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Find tool calls, newest first: those in the store, and those that are still in the local logs."""
    asyncio.run(_query(settings, where, limit, as_json=as_json))


@takes(trail_settings)
def show(
    settings: Settings,
    *,
    call: Annotated[
        str,
        typer.Argument(metavar="ID", help="A call's id (the audit id of a refusal) or an event's, or its beginning."),
    ],
    as_json: AsJson = False,
) -> None:
    """Show every event of a call in the order in which they happened. Exit code 1: there is none."""
    events = asyncio.run(find_events(settings, call))
    if not as_json:
        _print_events(events)
        return
    for event in events:
        typer.echo(format_json(event))


async def _query(settings: Settings, where: Filter, limit: int, *, as_json: bool) -> None:
    async with open_audit(settings.postgres, settings.state_dir) as audit:
        if as_json:
            async for call in _calls(audit, where, limit):
                typer.echo(format_json(dataclasses.asdict(call)))
        else:
            calls = [call async for call in _calls(audit, where, limit)]
            print_calls(calls, Console(markup=False, emoji=False, highlight=False))
            # On standard error: standard output is for what reads the table.
            more = "; there may be more: --limit" if len(calls) == limit else ""
            Console(stderr=True, markup=False, highlight=False).print(f"{len(calls)} calls{more}", style="dim")


async def _calls(audit: AuditReader, where: Filter, limit: int) -> AsyncIterator[CallRecord]:
    # Page by page: with --json a large answer is printed as it comes, and never held as a whole.
    before = None
    while limit > 0 and (page := await audit.calls(where, min(limit, PAGE), before)):
        for call in page:
            yield call
        limit -= len(page)
        before = page[-1].cursor


async def find_events(settings: Settings, wanted: str) -> list[dict[str, Any]]:
    """Return the events of a call by its id, an event's id, or the beginning of one. Raises ConfigError."""
    async with open_audit(settings.postgres, settings.state_dir) as audit:
        return await audit.find(wanted) or await audit.find(await _complete(audit, wanted))


async def _complete(audit: AuditReader, prefix: str) -> str:
    """Return the one id that begins so. Raises ConfigError where there is none, or more than one."""
    # From so many digits on, the time in a UUIDv7 narrows the search; with fewer it would read the whole store.
    if len(prefix) < MIN_PREFIX:
        raise ConfigError(
            f"no call or event has the id {prefix!r}; of a longer one give at least {MIN_PREFIX} characters"
        )
    found = await audit.ids(prefix, SHOWN_IDS + 1)
    if not found:
        raise ConfigError(
            f"no call or event has an id that begins with {prefix!r}; `interlock audit query` lists calls"
        )
    if len(found) > 1:
        named = ", ".join(map(printable, found[:SHOWN_IDS])) + (" and others" if len(found) > SHOWN_IDS else "")
        raise ConfigError(f"{prefix!r} is the beginning of several ids ({named}); give more of it")
    return found[0]


def print_calls(calls: Sequence[CallRecord], console: Console) -> None:
    """Print the calls, one a line where possible: with shorter times and ids first, then with fewer columns."""
    # A file or a pipe has no width: whatever reads it gets every column.
    if not console.is_terminal:
        console.width = UNBOUNDED
    columns = dict(COLUMNS)
    unbounded = console.options.update(max_width=UNBOUNDED)
    table = _call_table(calls, columns)
    # None first: shorter times and ids may be enough, before any column is left out.
    for gone in (None, *LEAST_TELLING):
        if console.measure(table, options=unbounded).maximum <= console.width:
            break
        columns |= SHORTER
        columns.pop(gone or "", None)
        table = _call_table(calls, columns)
    console.print(table)


def _call_table(calls: Sequence[CallRecord], columns: dict[str, Column]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name == "ms" else "left")
    for call in calls:
        table.add_row(*(cell(call) for cell in columns.values()))
    return table


def _print_events(events: list[dict[str, Any]]) -> None:
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    for event in events:
        decision = event.get("decision")
        colour = COLOURS.get(decision, "") if isinstance(decision, str) else ""
        console.print(
            Text.assemble((printable(event["kind"]), f"bold {colour}"), f"  {format_time(event['time'])} UTC")
        )
        console.print(f"  {'event_id':<15} {printable(event['event_id'])}")
        for name, value in event.items():
            if name not in _FIRST:
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                console.print(f"  {printable(name):<15} {printable(text)}")
        console.print()
