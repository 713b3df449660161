"""The quoting of POSIX sh and bash: brackets and their partners, and `$'…'`. Pure, no I/O."""

from __future__ import annotations

from typing import Final

_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_CODES: Final = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}
_DIGITS: Final = {8: "01234567", 16: "0123456789abcdefABCDEF"}


class ShellError(Exception):
    """A command line that cannot be read."""


def read_balanced(text: str, start: int) -> tuple[str, int]:
    """Return what stands between the bracket at `start` and its partner, and the place after it.

    Raises ShellError where it has none.
    """
    opening = text[start]
    closing = {"(": ")", "{": "}"}[opening]
    level = 0
    at = start
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char in "'`":
            at = _end_of_quote(text, at)
        elif char == '"':
            at = _end_of_double(text, at)
        elif char == opening:
            level += 1
        elif char == closing:
            level -= 1
            if not level:
                return text[start + 1 : at], at + 1
        at += 1
    raise ShellError("an unclosed bracket")


def _end_of_quote(text: str, at: int) -> int:
    end = text.find(text[at], at + 1)
    if end < 0:
        raise ShellError("an unclosed quote")
    return end


def _end_of_double(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        raise ShellError("an unclosed quote")
    return at


def read_ansi_c(text: str, at: int) -> tuple[str, int]:
    """Return what `$'…'` stands for, from the place after its opening quote, and the place after it.

    Raises ShellError where it does not end.
    """
    out: list[str] = []
    while at < len(text):
        char = text[at]
        at += 1
        if char == "'":
            return "".join(out), at
        if char == "\\":
            char, at = _escape(text, at)
        out.append(char)
    raise ShellError("an unclosed quote")


def _escape(text: str, at: int) -> tuple[str, int]:
    char = text[at : at + 1]
    if char in _CODES:
        base, digits = _CODES[char]
        return _code(text, at + 1, base, digits)
    if char and char in _DIGITS[8]:
        return _code(text, at, 8, 3)
    if char == "c":
        return chr(ord(text[at + 1 : at + 2] or "@") & 0x1F), at + 2
    return _ESCAPES.get(char, char), at + 1


def _code(text: str, at: int, base: int, digits: int) -> tuple[str, int]:
    end = at
    while end < len(text) and end - at < digits and text[end] in _DIGITS[base]:
        end += 1
    number = int(text[at:end] or "0", base)
    return (chr(number) if end > at and number < 0x110000 else ""), end
