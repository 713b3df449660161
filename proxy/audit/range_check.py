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
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from proxy.audit.chain_reader import CLOSE, COMPARED, wrong_column
from proxy.audit.event_columns import FLAGS, NUMBERS, TEXTS, VALUES
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
_HEAD = 5  # seq, chain, body, event_id and time come before the columns
_FIRST = {
    name: COMPARED.index(names[0]) + _HEAD
    for name, names in (("t", TEXTS), ("f", FLAGS), ("n", NUMBERS), ("v", VALUES))
}
_KIND = COMPARED.index("kind") + _HEAD
_SIZE = COMPARED.index("result_size") + _HEAD
_TEXT_FIELDS = slice(_FIRST["t"], _FIRST["t"] + len(TEXTS))
_FLAG = {None: _NULL, True: "t", False: "f"}


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

    def take(self, seq: int, chain: str, body: str, agree: Callable[[], bool]) -> None:
        """Take the next row; `agree` says whether its columns are what its text says."""
        if self._tip is None:
            # The row before the first: its link is checked with the stretch before this one.
            self._tip, self._began = bytes.fromhex(chain), chain
            self.good = seq == self._next - 1
            return
        digest = sha256(self._tip + seq.to_bytes(8) + body.encode()).digest()
        fits = seq == self._next and digest.hex() == chain and self._links.get(seq, chain) == chain and agree()
        self.good = self.good and fits
        self._tip = digest
        self._next += 1

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
        for row in rows:
            walk.take(row[0], row[1], row[2], partial(rows_agree, row))
            if not walk.good:
                return


async def _read_postgres(url: str, stretch: Stretch, walk: StretchWalk) -> None:
    rest = b""

    async def take(data: bytes) -> None:
        nonlocal rest
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if walk.good:
            try:
                take_lines(lines, walk)
            except ODD:
                walk.good = False

    first = stretch.first - (stretch.tip is None)
    await copy_out(url, POSTGRES_SQL["chain_rows"], (stretch.writer, first, stretch.last), take, SECONDS)
    walk.good = walk.good and not rest


def take_lines(lines: Iterable[bytes], walk: StretchWalk) -> None:
    """Take lines of Postgres' COPY, in its text format."""
    for line in lines:
        text = line.decode()
        fields = text.split("\t")
        if text.count("\\") != text.count(_NULL):  # a backslash in a value is doubled, so these are not all NULL
            fields = [one if one == _NULL else _unescape(one) for one in fields]
        walk.take(int(fields[0]), fields[1], fields[2], partial(_lines_agree, fields, text))
        if not walk.good:
            return


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    if text.count("\\") == 2 * text.count("\\\\"):
        return text.replace("\\\\", "\\")
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def _lines_agree(fields: Sequence[str], line: str) -> bool:
    """Return whether the fields of a line are what its text says."""
    said = orjson.loads(fields[2])
    get = said.get
    if type(get("jsonrpc_id")) is int:
        said["jsonrpc_id"] = str(said["jsonrpc_id"])
    plain = (
        fields[_TEXT_FIELDS] == [get(name, _NULL) for name in TEXTS]
        and (fields[3], fields[_KIND]) == (said["event_id"], said["kind"])
        and abs(float(fields[4]) - said["time"]) <= CLOSE
        and all(_same_flag(fields[at], get(name)) for at, name in enumerate(FLAGS, _FIRST["f"]))
        and all(_same_number(fields[at], get(name)) for at, name in enumerate(NUMBERS, _FIRST["n"]))
        and fields[_SIZE] == (_NULL if (size := get("result_size")) is None else str(size))
        and all(_same_value(fields[at], get(name)) for at, name in enumerate(VALUES, _FIRST["v"]))
    )
    # A value that is the very text `\N` looks as NULL does once it is unescaped.
    return (plain and "\\\\N" not in line) or _agree_slowly(line)


def _same_flag(text: str, said: Any) -> bool:
    return (said is None or type(said) is bool) and _FLAG[said] == text


def _same_number(text: str, said: Any) -> bool:
    return said is None if text == _NULL else type(said) in (int, float) and float(text) == said


def _same_value(text: str, said: Any) -> bool:
    if text == _NULL or said is None:
        return text == _NULL and said is None
    sort = orjson.OPT_SORT_KEYS
    return orjson.dumps(orjson.loads(text), option=sort) == orjson.dumps(said, option=sort)


def _agree_slowly(line: str) -> bool:
    """Compare as the careful walk does."""
    values: list[Any] = [None if one == _NULL else _unescape(one) for one in line.split("\t")]
    for at in (*range(_FIRST["n"], _FIRST["n"] + len(NUMBERS)), 4):
        values[at] = None if values[at] is None else float(values[at])
    for at in range(_FIRST["f"], _FIRST["f"] + len(FLAGS)):
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
        list(row[_TEXT_FIELDS]) == [get(name) for name in TEXTS]
        and (row[3], row[_KIND]) == (said["event_id"], said["kind"])
        and abs(row[4] - said["time"]) <= CLOSE
        and all(_same_bit(row[at], get(name)) for at, name in enumerate(FLAGS, _FIRST["f"]))
        and all(row[at] == get(name) and type(get(name)) is not bool for at, name in enumerate(NUMBERS, _FIRST["n"]))
        and row[_SIZE] == get("result_size")
        and type(get("result_size")) is not bool
        and all(_same_json(row[at], get(name)) for at, name in enumerate(VALUES, _FIRST["v"]))
    )
    return plain or wrong_column(row[2], row[3], row[4], row[_HEAD:]) is None


def _same_bit(column: Any, said: Any) -> bool:
    return column is None if said is None else type(said) is bool and column == int(said)


def _same_json(column: Any, said: Any) -> bool:
    if column is None or said is None:
        return column is None and said is None
    return bool(column == orjson.dumps(said).decode())
