"""Draw a random text that a regular expression matches. For tests of detectors; no look-around, no back references."""

from __future__ import annotations

import re
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random

_FLAGS: Final = re.compile(r"\(\?-?[a-z]+\)")
_SCOPED: Final = re.compile(r"\(\?-?[a-z]+:")
_PRINTABLE: Final = [chr(code) for code in range(33, 127)]
_LONGEST: Final = 12  # more repetitions than the least that an open repeat may have
_CLASSES: Final = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
}


def sample(regex: str, rng: random.Random) -> str:
    """Return a text that `regex` matches; flags in it are ignored."""
    plain = _SCOPED.sub("(?:", _FLAGS.sub("", regex)).replace(r"\z", "$")
    return _draw(parser.parse(plain), rng)


def _draw(parts: Any, rng: random.Random) -> str:
    return "".join(_one(kind, value, rng) for kind, value in parts)


def _one(kind: Any, value: Any, rng: random.Random) -> str:
    if kind is op.LITERAL:
        return chr(value)
    if kind is op.IN:
        return rng.choice(_signs(value))
    if kind is op.BRANCH:
        return _draw(rng.choice(value[1]), rng)
    if kind is op.SUBPATTERN:
        return _draw(value[3], rng)
    if kind in {op.MAX_REPEAT, op.MIN_REPEAT}:
        least, most, inner = value
        number = rng.randint(least, min(int(most), least + _LONGEST))
        return "".join(_draw(inner, rng) for _ in range(number))
    if kind in {op.ANY, op.NOT_LITERAL}:
        return rng.choice([sign for sign in _PRINTABLE if kind is op.ANY or ord(sign) != value])
    return ""  # an edge


def _signs(items: Any) -> list[str]:
    found: set[str] = set()
    negated = False
    for kind, value in items:
        if kind is op.NEGATE:
            negated = True
        elif kind is op.LITERAL:
            found.add(chr(value))
        elif kind is op.RANGE:
            found.update(map(chr, range(value[0], value[1] + 1)))
        elif kind is op.CATEGORY:
            found.update(_CLASSES.get(str(value), _PRINTABLE))
    return [sign for sign in _PRINTABLE if sign not in found] if negated else sorted(found)
