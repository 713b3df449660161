"""Output of commands: tables, JSON, and text from servers made safe for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table

from proxy.system.printable import printable, printable_lines

__all__ = ["escaped", "format_json", "print_json_lines", "print_note", "print_table", "printable", "printable_lines"]

# Valid in JSON, but a terminal obeys them, shows text in another order, or takes them for the end of a line.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def format_json(value: Any) -> str:
    """Return a value as one line of JSON that is safe to print on a terminal."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def escaped(name: str) -> str:
    """Return a name from a server as JSON escapes it: a terminal shows every character of it and obeys none."""
    return json.dumps(name)[1:-1]


def print_json_lines(values: Iterable[Any]) -> None:
    for value in values:
        typer.echo(json.dumps(value))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[RenderableType]], empty: str = "") -> None:
    """Print a table without lines; `empty` if there are no rows. Text in `rows` is printed as it is, without markup."""
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Console(markup=False, emoji=False).print(table if table.row_count or not empty else empty)


def print_note(text: str) -> None:
    """Print a message for people to stderr, so that stdout holds only the result."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False).print(text)
