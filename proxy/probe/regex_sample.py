"""Makes a text that a regular expression matches, for schemas with a `pattern`. Pure."""

from __future__ import annotations

import re
import string
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from proxy.policy.regex import compile_search

# The parser is re's own, and private: a tree of the pattern without an engine that a server's pattern could stall.
LETTERS = string.ascii_lowercase + string.digits + string.ascii_uppercase + " -_./:@"
_SAMPLES = {"DIGIT": "1", "NOT_DIGIT": "a", "SPACE": " ", "NOT_SPACE": "a", "WORD": "a", "NOT_WORD": "-"}
CATEGORIES = {getattr(constants, f"CATEGORY_{name}"): sample for name, sample in _SAMPLES.items()}
MAX_REPEATS = 64


def example(pattern: str) -> str | None:
    """Return a text in which `pattern` is found; None where none can be made."""
    try:
        text = _write_all(parser.parse(pattern))
        return text if is_found(pattern, text) else None
    except (re.error, RecursionError, OverflowError, KeyError, LookupError):
        return None


def is_found(pattern: str, text: str) -> bool:
    """Return whether `pattern` is found in `text`, in linear time; True for a pattern that RE2 cannot compile."""
    try:
        return compile_search(pattern)(text)
    except ValueError:
        return True


def _write(token: tuple[Any, Any]) -> str:
    kind, value = token
    if kind is constants.LITERAL:
        return chr(value)
    if kind is constants.ANY:
        return "a"
    if kind is constants.NOT_LITERAL:
        return next(letter for letter in LETTERS if ord(letter) != value)
    if kind is constants.IN and value[0][0] is constants.NEGATE:
        return next(letter for letter in LETTERS if not any(_is_in(letter, choice) for choice in value[1:]))
    if kind is constants.IN:
        kind, value = value[0]
        return CATEGORIES[value] if kind is constants.CATEGORY else chr(value[0] if kind is constants.RANGE else value)
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
        least, most, inner = value
        return _write_all(inner) * int(min(max(least, min(1, int(most))), MAX_REPEATS))
    if kind is constants.SUBPATTERN:
        return _write_all(value[-1])
    if kind is constants.BRANCH:
        return _write_all(value[1][0])
    if kind in (constants.AT, constants.ASSERT, constants.ASSERT_NOT):
        return ""
    raise LookupError(kind)


def _write_all(tokens: Any) -> str:
    return "".join(_write(token) for token in tokens)


def _is_in(letter: str, choice: tuple[Any, Any]) -> bool:
    kind, value = choice
    if kind is constants.RANGE:
        return bool(value[0] <= ord(letter) <= value[1])
    if kind is constants.CATEGORY:
        return CATEGORIES[value] == letter or (value is constants.CATEGORY_WORD and letter.isalnum())
    return bool(ord(letter) == value)
