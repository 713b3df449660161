"""The hash of a call's arguments: equal for equal values, however they are written. Pure, no I/O.

SHA-256 over canonical JSON (RFC 8785), which sorts keys and knows numbers as doubles: 1, 1.0 and 1e0 are one. What a
double cannot hold exactly is refused, since two different calls would share a hash.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import rfc8785

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import JsonObject

MAX_KEY_SHOWN: Final = 60
MAX_PLACE_SHOWN: Final = 200


class NotExactError(ValueError):
    """A value that canonical JSON cannot represent exactly; the message names its place, never the value."""


def hash_arguments(arguments: JsonObject | None) -> str:
    """Return the SHA-256 of `arguments` as hex digits; a call without arguments is a call with none.

    Raises NotExactError for integers past 2^53, NaN, infinities, half surrogate
    pairs, and what is no JSON or nested too deep.
    """
    return hashlib.sha256(canonical(arguments or {})).hexdigest()


def canonical(value: JsonObject) -> bytes:
    """Encode `value` as RFC 8785 says. Raises NotExactError where that is not possible without loss."""
    try:
        return rfc8785.dumps(value)
    except RecursionError as error:
        raise NotExactError("the arguments are nested too deep") from error
    except ValueError as error:
        raise NotExactError(_complaint(value)) from error


def _complaint(value: JsonObject) -> str:
    for place, leaf in _leaves("$", value):
        if problem := _problem(leaf):
            return f"{place} {problem}"
    return "the arguments are not JSON"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Return what `value` is made of, keys too, with its place."""
    waiting = [(path, value)]
    while waiting:
        place, current = waiting.pop()
        if isinstance(current, dict):
            yield from ((f"{place}: a key", key) for key in current)
            # A key as a message shows it: bounded, with control characters escaped.
            keys = [json.dumps(str(key)[:MAX_KEY_SHOWN])[1:-1] for key in current]
            below = [(_below(place, f".{key}"), inner) for key, inner in zip(keys, current.values(), strict=True)]
            waiting += reversed(below)
        elif isinstance(current, list | tuple):
            waiting += [(_below(place, f"[{n}]"), current[n]) for n in reversed(range(len(current)))]
        else:
            yield place, current


def _below(place: str, step: str) -> str:
    return place if len(place) > MAX_PLACE_SHOWN else place + step


def _problem(leaf: Any) -> str | None:
    try:
        rfc8785.dumps(leaf)
    except ValueError:
        if isinstance(leaf, str):
            return "holds half a surrogate pair; remove the broken character"
        if isinstance(leaf, int):
            return "is an integer past 2^53, which many readers round; send it as a string"
        if isinstance(leaf, float):
            return "is not a finite number"
        return f"is a {type(leaf).__name__}, not JSON"
    return None
