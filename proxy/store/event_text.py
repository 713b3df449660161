"""Reading an event's text for the columns beside it. Pure.

The text itself is stored as it is; columns take what of it every database can
read: no NUL, no number that is none, no value of another type than the column's.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeGuard

MAX_TIME = 253_402_300_800  # the year 10000
MAX_NAME = 200
MAX_INTEGER = 1 << 63
MIN_TIME_DIGITS = 8
MAX_PLACE_DIGITS = 9
DAY = 86_400
REPLACEMENT = "\ufffd"
_SEGMENT = re.compile(
    r"""\.?\[("(?:[^"\\]|\\.)*")\](?=[.\[]|$)|\.?\[([0-9]+)\](?=[.\[]|$)|(?:(?<!^)\.|^)([^.\[\]]+)(?=[.\[]|$)"""
)

TEXTS = (
    "call_id",
    "proposal_id",
    "agent",
    "server",
    "transport",
    "revision",
    "session",
    "jsonrpc_id",
    "method",
    "tool",
    "arguments_hash",
    "decision",
    "reason",
    "rule",
    "policy_version",
    "result_digest",
    "outcome",
)
FLAGS = ("authenticated", "is_error")
NUMBERS = ("gate_ms", "upstream_ms", "total_ms")
VALUES = ("arguments", "rules", "shadow_rules", "redactions", "detail")


_ANY: frozenset[type] = frozenset((str, int, float, bool, list, dict, type(None)))
_TYPES: dict[str, frozenset[type]] = {
    **dict.fromkeys(TEXTS, frozenset((str, int))),
    **dict.fromkeys(FLAGS, frozenset((bool,))),
    **dict.fromkeys(NUMBERS, frozenset((int, float))),
    **dict.fromkeys(VALUES, frozenset((str, int, float, bool, list, dict))),
}


class PoisonError(ValueError):
    """A text that is no event."""


def readable(body: str) -> str:
    """Give what the columns need of the event in `body`, as JSON that every database takes.

    Raises PoisonError where it is no event: an object with event_id, kind and time.
    """
    event = _parse(body)
    if _is_plain(body, event):
        return body
    known: dict[str, Any] = {"event_id": _name(event, "event_id"), "kind": _name(event, "kind"), "time": _time(event)}
    known |= {name: clean(str(event[name])) for name in TEXTS if type(event.get(name)) in (str, int)}
    known |= {name: event[name] for name in FLAGS if isinstance(event.get(name), bool)}
    known |= {name: event[name] for name in NUMBERS if _is_number(event.get(name))}
    known |= {name: clean(event[name]) for name in VALUES if event.get(name) is not None}
    size = event.get("result_size")
    if isinstance(size, int) and -MAX_INTEGER <= size < MAX_INTEGER:
        known["result_size"] = int(size)
    return json.dumps(known, ensure_ascii=False)


def _is_plain(body: str, event: dict[str, Any]) -> bool:
    """Say whether columns can be read from the text as it is; so they can from what a log of ours wrote."""
    if "\\u" in body or "NaN" in body or "Infinity" in body:
        return False
    _name(event, "event_id"), _name(event, "kind"), _time(event)
    size = event.get("result_size", 0)
    if type(size) is not int or not -MAX_INTEGER <= size < MAX_INTEGER:
        return False
    if not all(type(value) in _TYPES.get(name, _ANY) for name, value in event.items()):
        return False
    return all(clean(event[name]) == event[name] for name in VALUES if name in event)


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


def _time(event: dict[str, Any]) -> float:
    time = event.get("time")
    if not _is_number(time) or not 0 <= time < MAX_TIME:
        raise PoisonError("its time is not a number of seconds")
    return float(time)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def clean(value: Any) -> Any:
    """Give a JSON value as columns have it."""
    if isinstance(value, str):
        return value.replace("\0", REPLACEMENT).encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


def spelt(text: str) -> list[Any]:
    """Give the JSON values that `text` may mean: itself, and the number, true, false or null that it spells."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [clean(text)]
    return [clean(text), value] if value is None or isinstance(value, bool) or _is_number(value) else [clean(text)]


def segments(path: str) -> list[str]:
    """Take a path such as `files[0].name`, `files.0.name` or `["a.b"].c` apart. Raises ValueError."""
    parts, place = ([] if path else [""]), 0
    while place < len(path):
        match = _SEGMENT.match(path, place)
        if match is None:
            raise ValueError(f"{path!r} is no path")
        quoted, number, name = match.groups()
        parts.append(clean(json.loads(quoted) if quoted else number or name))
        place = match.end()
    return parts


def is_place(part: str) -> bool:
    """Say whether part of a path may be a place in a list."""
    return part.isascii() and part.isdecimal() and len(part) <= MAX_PLACE_DIGITS


def time_of(prefix: str) -> tuple[float, float] | None:
    """Give between which times events with an id that begins so lie, if it is a UUIDv7's beginning; generously."""
    digits = prefix.replace("-", "")[:12]
    if len(digits) < MIN_TIME_DIGITS or not all(digit in "0123456789abcdef" for digit in digits):
        return None
    first, last = (int(digits.ljust(12, rest), 16) / 1000 for rest in "0f")
    return (first - DAY, last + 7 * DAY) if first > DAY and last < MAX_TIME - 7 * DAY else None
