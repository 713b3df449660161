"""Whether a sed script runs programs or writes files. Pure, no I/O."""

from __future__ import annotations

import re
from typing import Final

_ADDRESS: Final = re.compile(r"\s*(?:\d+(?:~\d+)?|\$|[+~]\d+)[ \t]*")
_BLANKS: Final = re.compile(r"[\s;]*")
_LINE: Final = re.compile(r"[^\n]*")
_LABEL: Final = re.compile(r"[^\n;}]*")
_FLAGS: Final = re.compile(r"[gpiImM0-9]*")
_PLAIN: Final = frozenset("dDgGhHlnNpPqQxzF={}")


class _ScriptError(Exception):
    """A script that this reader does not understand."""


def is_harmless_sed(script: str) -> bool:
    """Return whether a script only edits text: no `e`, no `w`, no `s///e`. False where it cannot be read."""
    try:
        at = _BLANKS.match(script, 0).end()  # type: ignore[union-attr] # it fits everywhere
        while at < len(script):
            at = _command(script, _addresses(script, at))
            at = _BLANKS.match(script, at).end()  # type: ignore[union-attr]
    except (_ScriptError, IndexError):
        return False
    return True


def _addresses(script: str, at: int) -> int:
    while True:
        found = _ADDRESS.match(script, at)
        if found is not None:
            at = found.end()
        elif script[at] == "/":
            at = _delimited(script, at, "/")
        elif script[at] == "\\":
            at = _delimited(script, at + 1, script[at + 1])
        elif script[at] not in "!, \tIM":
            return at
        else:
            at += 1


def _delimited(script: str, at: int, mark: str) -> int:
    """Return the position behind the next `mark` after `at`, where no backslash or class hides it."""
    if mark in "\n\\":
        raise _ScriptError
    at += 1
    while script[at] != mark:
        at += 2 if script[at] == "\\" else 1
    return at + 1


def _command(script: str, at: int) -> int:
    """Return the position behind the command at `at`; raise _ScriptError where it does more than edit."""
    letter = script[at]
    if letter in _PLAIN:
        return at + 1
    if letter in "aic#r":
        return _LINE.match(script, at).end()  # type: ignore[union-attr]
    if letter in ":btT":
        return _LABEL.match(script, at).end()  # type: ignore[union-attr]
    if letter in "sy":
        mark = script[at + 1]
        at = _delimited(script, _delimited(script, at + 1, mark) - 1, mark)
        at = _FLAGS.match(script, at).end()  # type: ignore[union-attr]
        if script[at : at + 1] not in ("", "\n", ";", "}", " ", "\t", "#"):
            raise _ScriptError
        return at
    raise _ScriptError
