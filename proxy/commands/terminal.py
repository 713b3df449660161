"""Output of commands: tables, JSON, errors, and text from servers made safe for a terminal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.system.terminal_text import count, display_width, fit_widths, printable, printable_lines, shorten

__all__ = [
    "LineTable",
    "count",
    "error_object",
    "escaped",
    "format_json",
    "print_diff",
    "print_error",
    "print_json_lines",
    "print_note",
    "print_pairs",
    "print_schema",
    "print_table",
    "printable",
    "printable_lines",
    "short_id",
    "stdout_console",
]

# Valid in JSON, but a terminal obeys them, shows text in another order, or takes them for the end of a line.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
# What is in quotes or backquotes is a value or a command. A quote within a word is an apostrophe.
_QUOTED = re.compile(r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)(?!\w)""")
UNBOUNDED = 10_000
GAP = 2
SHORT_ID = 13  # so many characters of an id are enough to look it up
COLOURS = {
    "deny": "red",
    "propose": "yellow",
    "allow": "green",
    "pending": "yellow",
    "approved": "green",
    "rejected": "red",
    "blocked": "red",
}

type Cell = str | Text | int


def format_json(value: Any) -> str:
    """Return a value as one line of JSON that is safe to print on a terminal."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def escaped(name: str) -> str:
    """Return a name from a server as JSON escapes it: a terminal shows every character of it and obeys none."""
    return json.dumps(name)[1:-1]


def print_json_lines(values: Iterable[Any]) -> None:
    for value in values:
        typer.echo(format_json(value))


def print_schema(schema: Any, *, as_json: bool) -> None:
    """Print a JSON Schema: indented for people, or as one line."""
    typer.echo(format_json(schema) if as_json else json.dumps(schema, indent=2))


def stdout_console() -> Console:
    """Return a console for results. A file or a pipe has no width: whatever reads it gets every value whole."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = UNBOUNDED
    return console


def short_id(value: Any, console: Console) -> str:
    """Return an id for a table: on a terminal its beginning, which every command takes in its place."""
    return printable(value)[: SHORT_ID if console.is_terminal else None]


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    empty: str = "",
    *,
    right: Collection[str] = (),
    title: str = "",
) -> None:
    """Print a table without lines; `empty` if there are no rows. Text in `rows` is printed as it is, without markup.

    On a terminal that is too narrow, long cells are folded: nothing is lost.
    """
    console, table = stdout_console(), _table(title)
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in right else "left")
    for row in rows:
        table.add_row(*(str(cell) if isinstance(cell, int) else cell for cell in row))
    console.print(table if table.row_count or not empty else empty, soft_wrap=not table.row_count)


def _table(title: str = "", *, header: bool = True) -> Table:
    return Table(
        box=None,
        header_style="bold",
        pad_edge=False,
        show_header=header,
        title=title or None,
        title_justify="left",
        title_style="bold",
    )


@dataclass
class LineTable:
    """A table whose rows are one line each, whatever the terminal's width. Rows may come in batches.

    Where a line is too long, the longest cells are cut in the middle, but never those of the columns in `whole`.
    Without a terminal nothing is cut.
    """

    columns: Sequence[str]
    whole: Collection[str] = ()
    right: Collection[str] = ()
    console: Console = field(default_factory=stdout_console)
    _widths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.console.is_terminal:
            self.console.width = UNBOUNDED

    def natural_width(self, rows: Iterable[Sequence[str | Text]]) -> int:
        """Return how wide a terminal must be to show these rows whole."""
        return sum(self._wanted(rows)) + GAP * (len(self.columns) - 1)

    def print(self, rows: Sequence[Sequence[str | Text]]) -> None:
        """Print rows; with the first ones, the names of the columns. Columns stay as wide as they were, or grow."""
        header, self._widths = not self._widths, self._wanted(rows)
        widths = self._fitted()
        table = _table(header=header)
        for name, width in zip(self.columns, widths, strict=True):
            shown = shorten(name, width)
            table.add_column(
                shown, width=width, no_wrap=True, overflow="crop", justify="right" if name in self.right else "left"
            )
        for row in rows:
            table.add_row(*(_cut(cell, width) for cell, width in zip(row, widths, strict=True)))
        self.console.print(table, no_wrap=True, crop=True)

    def _wanted(self, rows: Iterable[Sequence[str | Text]]) -> list[int]:
        widths = self._widths or list(map(display_width, self.columns))
        for row in rows:
            widths = [max(width, display_width(str(cell))) for width, cell in zip(widths, row, strict=True)]
        return widths

    def _fitted(self) -> list[int]:
        if not self.console.is_terminal:
            return self._widths
        flexible = [at for at, name in enumerate(self.columns) if name not in self.whole]
        taken = sum(self._widths) - sum(self._widths[at] for at in flexible)
        room = self.console.width - taken - GAP * (len(self.columns) - 1)
        widths = list(self._widths)
        for at, width in zip(flexible, fit_widths([widths[at] for at in flexible], room), strict=True):
            widths[at] = max(1, width)
        return widths


def _cut(cell: str | Text, width: int) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    return text if display_width(text.plain) <= width else Text(shorten(text.plain, width), text.style)


def print_pairs(pairs: Iterable[tuple[str, str | Text]]) -> None:
    """Print names and their values, one pair a line. Values are printed as they are, and never folded."""
    shown = list(pairs)
    width = max((len(name) for name, _ in shown), default=0)
    console = stdout_console()
    for name, value in shown:
        console.print(Text.assemble(f"{name:<{width}}  ", value), soft_wrap=True)


def print_diff(text: str) -> None:
    """Print a unified diff: on a terminal with colours and control characters escaped, elsewhere as it is."""
    console = stdout_console()
    if not console.is_terminal:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    for line in text.splitlines():
        style = "bold" if line.startswith(("---", "+++")) else {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        console.print(Text(printable(line), style), soft_wrap=True)


def print_note(text: str) -> None:
    """Print a message for people to stderr, so that stdout holds only the result."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False).print(text)


def error_object(message: str) -> dict[str, str | None]:
    """Return an error as `--json` prints it: what is wrong, and what to do: what follows the last semicolon."""
    masked = _QUOTED.sub(lambda found: "_" * len(found[0]), message)
    at = masked.rfind("; ")
    return {"error": message, "hint": None} if at < 0 else {"error": message[:at], "hint": message[at + 2 :]}


def print_error(message: str, *, as_json: bool = False) -> None:
    """Print an error to stderr: one JSON object, or one message for people."""
    if as_json:
        sys.stderr.write(format_json(error_object(message)) + "\n")
        return
    shown = Text.assemble(("error:", "bold red"), " ", printable_lines(message))
    Console(stderr=True, soft_wrap=True).print(shown)
