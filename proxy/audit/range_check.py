"""Checks a stretch of a writer's chain in a store at full speed, in a process of its own.

It says one thing only: every event of the stretch is there once, with the link that follows from its text, the columns
that its text has, and the links that were signed. Whatever it does not find so is left to the careful walk of
`verify.py`, which says what is wrong. So this may doubt a good event, and must never pass a bad one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from proxy.audit.chain_reader import CLOSE, COMPARED, wrong_column
from proxy.core.event_columns import FLAGS, NUMBERS, TEXTS, VALUES
from proxy.errors import StoreUnavailableError
from proxy.store.open_store import copy_out
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SQLITE_SQL = Queries("events_sqlite")
POSTGRES_SQL = Queries("events_postgres")
SECONDS = 600.0  # for one stretch
# What a row of another form than ours raises; the careful walk says what it is.
ODD = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
_NULL = "\\N"
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# A row of the query `chain_rows`: seq, chain, body, event_id and time, and then the columns that are compared.
_HEAD = 5
_AT = {name: at for at, name in enumerate(COMPARED, _HEAD)}
_NAMES = ("kind", *TEXTS)
_TEXT_FIELDS = slice(_AT["kind"], _AT[TEXTS[-1]] + 1)
_FLAG_FIELDS = tuple((_AT[name], name) for name in FLAGS)
_NUMBER_FIELDS = tuple((_AT[name], name) for name in NUMBERS)
_VALUE_FIELDS = tuple((_AT[name], name) for name in VALUES)
_SIZE = _AT["result_size"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Events `first` to `last` of a writer, and the links that were signed among them.

    `tip` is the link before the first; None where the event before it is to be read for that.
    """

    writer: str
    first: int
    last: int
    tip: str | None
    links: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class StretchResult:
    """Whether all is plainly good; the links before and at the end of the stretch."""

    good: bool
    began: str = ""
    ended: str = ""


class StretchWalk:
    """One stretch, taken row by row in the order of the numbers."""

    def __init__(self, stretch: Stretch) -> None:
        self.good = True
        self._links = stretch.links
        self._last = stretch.last
        self._next = stretch.first
        self._tip = bytes.fromhex(stretch.tip) if stretch.tip is not None else None
        self._began = stretch.tip or ""

    def take(self, rows: Iterable[Sequence[Any]], agree: Callable[[Any], bool]) -> None:
        """Take rows, up to the first that is not plainly good. `agree` compares a row's columns with its text."""
        rows = iter(rows)
        if self._tip is None:
            # The row before the first: its link is checked with the stretch before this one.
            row = next(rows, None)
            if row is None:
                return
            self._tip, self._began = bytes.fromhex(row[1]), row[1]
            self.good = int(row[0]) == self._next - 1
        tip, expected, links = self._tip, self._next, self._links
        for row in rows:
            chain = row[1]
            tip = sha256(tip + expected.to_bytes(8) + row[2].encode()).digest()
            if int(row[0]) != expected or tip.hex() != chain or links.get(expected, chain) != chain or not agree(row):
                self.good = False
                return
            expected += 1
        self._tip, self._next = tip, expected

    def result(self) -> StretchResult:
        whole = self.good and self._tip is not None and self._next == self._last + 1
        return StretchResult(whole, self._began, self._tip.hex() if whole and self._tip is not None else "")


def check_stretch(source: str | Path, stretch: Stretch) -> StretchResult:
    """Check a stretch in the Postgres at a URL, or in the SQLite file at a path. To be run in a process of its own.

    Raises StoreUnavailableError where the store cannot be read.
    """
    walk = StretchWalk(stretch)
    try:
        if isinstance(source, Path):
            _read_sqlite(source, stretch, walk)
        else:
            asyncio.run(_read_postgres(source, stretch, walk))
    except apsw.Error as error:
        raise StoreUnavailableError(f"the store {source} cannot be read ({error})") from error
    except ODD:
        return StretchResult(good=False)
    return walk.result()


def _read_sqlite(path: Path, stretch: Stretch, walk: StretchWalk) -> None:
    flags = apsw.SQLITE_OPEN_READWRITE  # a reader of a WAL file may have to recover it
    with contextlib.closing(apsw.Connection(str(path), flags=flags)) as connection:
        connection.set_busy_timeout(int(SECONDS * 1000))
        first = stretch.first - (stretch.tip is None)
        rows: Any = connection.execute(SQLITE_SQL["chain_rows"], (stretch.writer, first, stretch.last))
        walk.take(rows, rows_agree)


async def _read_postgres(url: str, stretch: Stretch, walk: StretchWalk) -> None:
    rest = b""

    async def take(data: bytes) -> None:
        nonlocal rest
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if walk.good:
            try:
                walk.take(map(split_line, lines), fields_agree)
            except ODD:
                walk.good = False

    first = stretch.first - (stretch.tip is None)
    await copy_out(url, POSTGRES_SQL["chain_rows"], (stretch.writer, first, stretch.last), take, SECONDS)
    walk.good = walk.good and not rest


def split_line(line: bytes) -> list[str]:
    """Return the fields of a line of Postgres' COPY, in its text format; NULL stays as it is written."""
    text = line.decode()
    fields = text.split("\t")
    # A backslash in a value is doubled, or begins an escape: where there are no more than NULLs, nothing is escaped.
    if text.count("\\") != fields.count(_NULL):
        fields = [one if one == _NULL else _unescape(one) for one in fields]
        fields.append(text)  # for the slow way: unescaped, a value may look as NULL does
    return fields


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    if text.count("\\") == 2 * text.count("\\\\"):
        return text.replace("\\\\", "\\")
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def fields_agree(fields: Sequence[str]) -> bool:
    """Return whether the fields of a line are what its text says."""
    said = orjson.loads(fields[2])
    get = said.get
    if type(get("jsonrpc_id")) is int:
        said["jsonrpc_id"] = str(said["jsonrpc_id"])
    escaped = len(fields) > _HEAD + len(COMPARED)
    if (
        fields[_TEXT_FIELDS] != [get(name, _NULL) for name in _NAMES]
        or fields[3] != said["event_id"]
        or abs(float(fields[4]) - said["time"]) > CLOSE
        or (escaped and "\\\\N" in fields[-1])
    ):
        return _agree_slowly(fields, escaped=escaped)
    # Written out, since this is most of what verifying costs: a plain NULL without a value in the text comes first.
    for at, name in _FLAG_FIELDS:
        if ((text := fields[at]) != _NULL or get(name) is not None) and not _same_flag(text, get(name)):
            return _agree_slowly(fields, escaped=escaped)
    for at, name in _NUMBER_FIELDS:
        if ((text := fields[at]) != _NULL or get(name) is not None) and not _same_number(text, get(name)):
            return _agree_slowly(fields, escaped=escaped)
    if fields[_SIZE] != (_NULL if (size := get("result_size")) is None else str(size)):
        return _agree_slowly(fields, escaped=escaped)
    for at, name in _VALUE_FIELDS:
        if ((text := fields[at]) != _NULL or get(name) is not None) and not _same_value(text, get(name)):
            return _agree_slowly(fields, escaped=escaped)
    return True


def _same_flag(text: str, said: Any) -> bool:
    return text == ("t" if said is True else "f" if said is False else None)


def _same_number(text: str, said: Any) -> bool:
    return text != _NULL and type(said) in (int, float) and float(text) == said


def _same_value(text: str, said: Any) -> bool:
    if text == _NULL or said is None:
        return False
    sort = orjson.OPT_SORT_KEYS
    return orjson.dumps(orjson.loads(text), option=sort) == orjson.dumps(said, option=sort)


def _agree_slowly(fields: Sequence[str], *, escaped: bool) -> bool:
    """Compare as the careful walk does."""
    if escaped:
        values: list[Any] = [None if one == _NULL else _unescape(one) for one in fields[-1].split("\t")]
    else:
        values = [None if one == _NULL else one for one in fields]
    for at in (4, *(at for at, _ in _NUMBER_FIELDS)):
        values[at] = None if values[at] is None else float(values[at])
    for at, _ in _FLAG_FIELDS:
        values[at] = None if values[at] is None else values[at] == "t"
    values[_SIZE] = None if values[_SIZE] is None else int(values[_SIZE])
    return wrong_column(values[2], values[3], values[4], values[_HEAD:]) is None


def rows_agree(row: Sequence[Any]) -> bool:
    """Return whether the columns of a row of SQLite are what its text says."""
    said = orjson.loads(row[2])
    get = said.get
    if type(get("jsonrpc_id")) is int:
        said["jsonrpc_id"] = str(said["jsonrpc_id"])
    plain = (
        list(row[_TEXT_FIELDS]) == [get(name) for name in _NAMES]
        and row[3] == said["event_id"]
        and abs(row[4] - said["time"]) <= CLOSE
        and all(row[at] == get(name) and type(get(name)) is not bool for at, name in _NUMBER_FIELDS)
        and row[_SIZE] == (size := get("result_size"))
        and type(size) is not bool
        and all(row[at] is get(name) or _same_bit(row[at], get(name)) for at, name in _FLAG_FIELDS)
        and all(row[at] is get(name) or _same_json(row[at], get(name)) for at, name in _VALUE_FIELDS)
    )
    return plain or wrong_column(row[2], row[3], row[4], row[_HEAD:]) is None


def _same_bit(column: Any, said: Any) -> bool:
    return type(said) is bool and type(column) is int and column == int(said)


def _same_json(column: Any, said: Any) -> bool:
    return said is not None and bool(column == orjson.dumps(said).decode())
