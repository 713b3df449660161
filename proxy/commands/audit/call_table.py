"""Prints tool calls as a table; on a narrow terminal without the least important columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.audit.event import CallRecord
from proxy.commands.terminal import printable
from proxy.commands.time_format import format_time

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


def print_calls(calls: Sequence[CallRecord], console: Console) -> None:
    """Print the calls, one a line where possible: with shorter times and ids first, then with fewer columns."""
    # A file or a pipe has no width: whatever reads it gets every column.
    if not console.is_terminal:
        console.width = UNBOUNDED
    columns = dict(COLUMNS)
    table = _table(calls, columns)
    # None first: shorter times and ids may be enough, before any column is left out.
    for gone in (None, *LEAST_TELLING):
        if _natural_width(table, console) <= console.width:
            break
        columns |= SHORTER
        columns.pop(gone or "", None)
        table = _table(calls, columns)
    console.print(table)


def _natural_width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(max_width=UNBOUNDED)).maximum


def _table(calls: Sequence[CallRecord], columns: dict[str, Column]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name == "ms" else "left")
    for call in calls:
        table.add_row(*(cell(call) for cell in columns.values()))
    return table
