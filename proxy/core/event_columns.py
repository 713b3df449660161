"""Reads the columns of an event from its text. Pure.

The text itself is stored as it is. Columns take what every database can store: no NUL, no NaN, no value of another
type than the column's.
"""

from __future__ import annotations

import json
import math
import operator
import re
from functools import lru_cache
from typing import Any, TypeGuard

import orjson

MAX_TIME = 253_402_300_800  # the year 10000
MAX_NAME = 200
MAX_INTEGER = 1 << 63
MIN_TIME_DIGITS = 8
MAX_INDEX_DIGITS = 9
DAY = 86_400
REPLACEMENT = "\ufffd"
_SEGMENT = re.compile(
    r"""\.?\[("(?:[^"\\]|\\.)*")\](?=[.\[]|$)|\.?\[([0-9]+)\](?=[.\[]|$)|(?:(?<!^)\.|^)([^.\[\]]+)(?=[.\[]|$)"""
)

TEXTS = (
    *("call_id", "proposal_id", "agent", "server", "transport", "revision", "session", "jsonrpc_id", "method", "tool"),
    *("arguments_hash", "decision", "reason", "rule", "policy_version", "result_digest", "outcome"),
)
FLAGS = ("authenticated", "is_error")
NUMBERS = ("gate_ms", "upstream_ms", "total_ms")
VALUES = ("arguments", "rules", "shadow_rules", "redactions", "detail")
# The fields that have a column, in the order in which `columns` returns them.
COLUMNS = ("event_id", "time", "kind", *TEXTS, *FLAGS, *NUMBERS, "result_size", *VALUES)
_CUT = {"decision": 16}  # how many characters a column holds, where that is not MAX_NAME
_NONE: type = type(None)
# The types that each may have on the fast path; any other goes the slow way.
_TYPES: tuple[frozenset[type], ...] = (
    *map(frozenset[type], ((str,), (float,), (str,))),
    *(frozenset[type]((str, int, _NONE) if name == "jsonrpc_id" else (str, _NONE)) for name in TEXTS),
    *(frozenset[type]((bool, _NONE)) for _ in FLAGS),
    *(frozenset[type]((float, _NONE)) for _ in NUMBERS),
    frozenset[type]((int, _NONE)),
    *(frozenset[type]((str, _NONE)) for _ in VALUES),
)
_TEXTS = slice(COLUMNS.index(TEXTS[0]), COLUMNS.index(TEXTS[-1]) + 1)
_VALUES = slice(COLUMNS.index(VALUES[0]), len(COLUMNS))
_ID, _DECISION, _SIZE, _DETAIL = map(COLUMNS.index, ("jsonrpc_id", "decision", "result_size", "detail"))


class PoisonError(ValueError):
    """A text that is no event."""


def readable(body: str) -> str:
    """Return what the columns need of the event in `body`, as JSON that every database takes.

    Raises PoisonError where it is no event: an object with event_id, kind and time.
    """
    return json.dumps(_known(body), ensure_ascii=False)


def columns(body: str, known: list[Any] | None = None) -> list[Any]:
    """Return the values of the event's columns, in the order of COLUMNS: JSON as text, names cut to their length.

    `known` are these values before they are checked, where the encoder had them; a `proposal_id` in `detail` is not
    among them. Raises PoisonError as `readable` does, and for the same texts.
    """
    return (known and _as_columns(known, body)) or _plain_columns(body) or _columns(_known(body))


def _plain_columns(body: str) -> list[Any] | None:
    """Return the columns of a text as our own encoder writes it, in a fraction of the time; None for any other."""
    try:
        event = orjson.loads(body)
        # Only a text that comes out as it went in: orjson reads large numbers as floats, and a repeated key once.
        if orjson.dumps(event).decode() != body:
            return None
    except (ValueError, TypeError):
        return None
    if type(event) is not dict:
        return None
    values: list[Any] = [event.get(name) for name in COLUMNS]
    if type(detail := values[_DETAIL]) is dict and "proposal_id" in detail:
        return None
    values[_VALUES] = [None if value is None else orjson.dumps(value).decode() for value in values[_VALUES]]
    return _as_columns(values, body)


def _as_columns(values: list[Any], body: str) -> list[Any] | None:
    """Return `values` as columns store them; None where the slow way might store something else."""
    # A backslash first: it is a search for one character, and most texts have none.
    if not _are_plain(tuple(map(type, values))) or ("\\" in body and "\\u0000" in body):
        return None
    event_id, time, kind = values[:3]
    if type(values[_ID]) is int:
        values[_ID] = str(values[_ID])
    longest = max(map(len, filter(None, values[_TEXTS])), default=0)
    if max(longest, len(event_id), len(kind)) > MAX_NAME or not (event_id and kind and 0 <= time < MAX_TIME):
        return None
    if len(values[_DECISION] or "") > _CUT["decision"] or not -MAX_INTEGER <= (values[_SIZE] or 0) < MAX_INTEGER:
        return None
    return values


@lru_cache(maxsize=1024)  # events of one kind have their types in common: 31 checks become one look-up
def _are_plain(types: tuple[type, ...]) -> bool:
    return all(map(operator.contains, _TYPES, types))


def _known(body: str) -> dict[str, Any]:
    """Return the fields that have columns, as every database takes them. Raises PoisonError."""
    event = _parse(body)
    known: dict[str, Any] = {name: _name(event, name) for name in ("event_id", "kind")}
    time = event.get("time")
    if not _is_number(time) or not 0 <= time < MAX_TIME:
        raise PoisonError("its time is not a number of seconds")
    known["time"] = float(time)
    known |= {name: clean(str(event[name])) for name in TEXTS if type(event.get(name)) in (str, int)}
    known |= {name: event[name] for name in FLAGS if isinstance(event.get(name), bool)}
    known |= {name: event[name] for name in NUMBERS if _is_number(event.get(name))}
    try:
        known |= {name: clean(event[name]) for name in VALUES if event.get(name) is not None}
    except RecursionError as error:
        raise PoisonError("it is nested too deep") from error
    size = event.get("result_size")
    if isinstance(size, int) and -MAX_INTEGER <= size < MAX_INTEGER:
        known["result_size"] = int(size)
    return known


def _columns(known: dict[str, Any]) -> list[Any]:
    detail = known.get("detail")
    if "proposal_id" not in known and isinstance(detail, dict) and detail.get("proposal_id") is not None:
        named = detail["proposal_id"]
        known["proposal_id"] = named if isinstance(named, str) else json.dumps(named, ensure_ascii=False)
    known |= {name: known[name][: _CUT.get(name, MAX_NAME)] for name in TEXTS if name in known}
    known |= {name: float(known[name]) for name in NUMBERS if name in known}
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    known |= {name: encode(known[name]) for name in VALUES if name in known}
    return [known.get(name) for name in COLUMNS]


def _parse(body: str) -> dict[str, Any]:
    if "\0" in body:
        raise PoisonError("it holds NUL")
    try:
        body.encode()
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise PoisonError(f"it cannot be read as JSON: {error}") from error
    if not isinstance(event, dict):
        raise PoisonError("it is no JSON object")
    return event


def _name(event: dict[str, Any], field: str) -> str:
    name = event.get(field)
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or clean(name) != name:
        raise PoisonError(f"its {field} is not a short text")
    return name


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def clean(value: Any) -> Any:
    """Return a JSON value as columns store it."""
    if isinstance(value, str):
        # Postgres takes no NUL in text, and neither database half a surrogate pair.
        return value.replace("\0", REPLACEMENT).encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def encoded(text: str) -> list[Any]:
    """Return the JSON values that `text` may mean: itself, and the number, true, false or null that it stands for."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [clean(text)]
    return [clean(text), value] if value is None or isinstance(value, bool) or _is_number(value) else [clean(text)]


def segments(path: str) -> list[str]:
    """Split a path such as `files[0].name`, `files.0.name` or `["a.b"].c`. Raises ValueError."""
    parts, offset = ([] if path else [""]), 0
    while offset < len(path):
        match = _SEGMENT.match(path, offset)
        if match is None:
            raise ValueError(f"{path!r} is no path")
        quoted, number, name = match.groups()
        parts.append(clean(json.loads(quoted) if quoted else number or name))
        offset = match.end()
    return parts


def is_index(part: str) -> bool:
    """Return whether part of a path may be an index of a list."""
    return part.isascii() and part.isdecimal() and len(part) <= MAX_INDEX_DIGITS


def time_of(prefix: str) -> tuple[float, float] | None:
    """Return between which times events whose id begins with `prefix` lie, where that can be a UUIDv7's beginning."""
    digits = prefix.replace("-", "")[:12]
    if len(digits) < MIN_TIME_DIGITS or not all(digit in "0123456789abcdef" for digit in digits):
        return None
    first, last = (int(digits.ljust(12, rest), 16) / 1000 for rest in "0f")
    # Generously: an event of a call may come days after the id of the call was made.
    return (first - DAY, last + 7 * DAY) if first > DAY and last < MAX_TIME - 7 * DAY else None


def claim_path(claim: str) -> tuple[tuple[str, ...], bool]:
    """Return where an event's detail has a claim, and whether its values are a list there."""
    told = {"sub": "subject", "iss": "issuer", "provider": "provider", "act.sub": "act"}
    if claim in told:
        return ("identity", told[claim]), claim == "act.sub"
    return ("identity", "claims", claim), True
