"""`interlock audit query | show`: single calls, and what happened in them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from proxy.audit.reader import AuditReader, open_audit
from proxy.commands.audit.filter import read_filter
from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.terminal import (
    COLOURS,
    SHORT_ID,
    LineTable,
    count,
    format_json,
    print_note,
    printable,
    stdout_console,
)
from proxy.commands.time_format import format_exact_time, format_time
from proxy.config import Settings
from proxy.core.event import CallRecord, Filter, LogEntry
from proxy.errors import ConfigError

PAGE = 1000
NONE = "No call matches; calls are recorded when agents make them through Interlock."
MIN_PREFIX = 8
SHOWN_IDS = 5
QUERY_EPILOG = """
Examples:

  interlock audit query --since 7d --decision deny

  interlock audit query --tool 'read_*' --arg path=/etc/passwd --json
"""
SHOW_EPILOG = "Example:  interlock audit show 0198c0de-7d31-7c52-a1b0-5e0d9f1c2a44"
HEADING = ("kind", "time")
# Of an event's fields, those that tell most; the others follow as they are recorded.
TELLING = (
    "decision",
    "rule",
    "reason",
    "agent",
    "server",
    "tool",
    "method",
    "arguments",
    "outcome",
    "call_id",
    "event_id",
)
FIELD = len("arguments_hash")
# What gives way to the rest on a narrow terminal, in this order. `--json` has everything.
LEAST_TELLING = ("agent", "ms", "outcome", "server")

type Column = Callable[[CallRecord], str | Text]
COLUMNS: dict[str, Column] = {
    "time (UTC)": lambda call: format_exact_time(call.time),
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
    "time (UTC)": lambda call: format_time(call.time),
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
    """Find tool calls, newest first: those in the store, and those that are still in the local logs.

    On a terminal each call is one line; on a narrow one with fewer columns, and long values cut in the
    middle (…). In a pipe or a file, and with --json, every value is whole.
    """
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
            if calls:
                print_calls(calls, stdout_console())
            # On standard error: standard output is for what reads the table.
            more = "; there may be more: --limit" if len(calls) == limit else ""
            print_note(f"{count(len(calls), 'call')}{more}" if calls else NONE)


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
        return [event for _, event in await find_entries(audit, wanted)]


async def find_entries(audit: AuditReader, wanted: str) -> list[tuple[LogEntry, dict[str, Any]]]:
    """Return the same, each event with its place in its writer's chain. Raises ConfigError."""
    return await audit.find_entries(wanted) or await audit.find_entries(await _complete(audit, wanted))


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
    columns = dict(COLUMNS)
    # None first: shorter times and ids may be enough, before any column is left out.
    for gone in (None, *LEAST_TELLING):
        if _fits(calls, columns, console):
            break
        columns |= SHORTER
        columns.pop(gone or "", None)
    _line_table(columns, console).print(_rows(calls, columns))


def _fits(calls: Sequence[CallRecord], columns: dict[str, Column], console: Console) -> bool:
    if not console.is_terminal:
        return True
    return _line_table(columns, console).natural_width(_rows(calls, columns)) <= console.width


def _line_table(columns: dict[str, Column], console: Console) -> LineTable:
    # An id that is cut in the middle cannot be looked up.
    return LineTable(tuple(columns), whole=("time (UTC)", "decision", "call"), right=("ms",), console=console)


def _rows(calls: Sequence[CallRecord], columns: dict[str, Column]) -> list[list[str | Text]]:
    return [[cell(call) for cell in columns.values()] for call in calls]


def _print_events(events: list[dict[str, Any]]) -> None:
    console = stdout_console()
    console.soft_wrap = True
    for event in events:
        decision = event.get("decision")
        colour = COLOURS.get(decision, "") if isinstance(decision, str) else ""
        console.print(
            Text.assemble((printable(event["kind"]), f"bold {colour}"), f"  {format_exact_time(event['time'])} UTC")
        )
        for name in (*TELLING, *(name for name in event if name not in (*HEADING, *TELLING))):
            if name in event:
                value = event[name]
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                console.print(f" {printable(name):<{FIELD}} {printable(text)}")
        for line in doubts(event):
            console.print(f" {'not certain':<{FIELD}} {printable(line)}")
        console.print()


def doubts(event: dict[str, Any]) -> Iterator[str]:
    """Yield what was seen and may belong to another call, in words."""
    detail = event.get("detail")
    detail = detail if isinstance(detail, dict) else {}
    observations = detail.get("observations")
    for one in observations if isinstance(observations, list) else [detail]:
        if not isinstance(one, dict) or not isinstance(sure := one.get("confidence"), int | float) or sure >= 1:
            continue
        inner = one.get("seen")
        seen = inner if isinstance(inner, dict) else one
        target = seen.get("path") or seen.get("peer") or seen.get("name") or seen.get("host") or seen.get("argv") or ""
        others = [other for other in one.get("candidates") or () if other != event.get("call_id")]
        rest = f", or it was {', '.join(map(str, others[:SHOWN_IDS]))}" if others else ""
        yield f"{seen.get('action')} {target}: {sure:.0%} by {one.get('how')}{rest}"
