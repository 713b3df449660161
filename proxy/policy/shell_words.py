"""The words of a shell command line: their quoting, and what they may become when they are expanded. Pure, no I/O.

A word that the shell expands has no text yet when a call is decided. Its `Shape` says what it
can still become, so that `rm -rf "$x/build"` is not taken for `rm -rf /`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from posixpath import commonprefix, normpath
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from proxy.policy.globs import is_glob

if TYPE_CHECKING:
    from collections.abc import Sequence

# The search below tries every order of the dynamic words of one command. With more words
# than this, any of them may be the one that a rule looks for.
MAX_SHAPES: Final = 16

_BEFORE_COMMAND: Final = (";", "&", "|", "(", "{", "\n", " do", " then", " else", " !")
# What matters inside brackets: quotes, the brackets themselves, and the words `case` and `esac`.
_BRACKET_MARKS: Final = {"(": re.compile(r"[\\'`\"()ce]"), "{": re.compile(r"[\\'`\"{}]")}
# Deeper ones would take long to read, again at every level.
_MAX_LEVEL: Final = 64
_STEPS: Final = frozenset(("", ".", ".."))
_STARS: Final = frozenset("*?")
_ESCAPES: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_CODES: Final = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}
_DIGITS: Final = {8: "01234567", 16: "0123456789abcdefABCDEF"}


class ShellError(Exception):
    """A command line that cannot be read."""


class Shape(NamedTuple):
    """How a word begins and ends, whatever it is expanded to.

    `slashes` is how many it has, or None where that is unknown: a glob adds none. `many`
    says that it may become several words, each of this shape.
    """

    prefix: str
    suffix: str
    slashes: int | None
    many: bool


class Piece(NamedTuple):
    """A part of a word: text, a `variable` with its modifiers (`x:-/etc`), or one that a script makes."""

    kind: Literal["bare", "quoted", "variable", "unknown", "process"]
    text: str = ""


class Word(NamedTuple):
    """One word: its known text, whether expansion could change it, and to what: any words where there is no shape.

    `pieces` are what a dynamic word is made of, for readers that know the variables.
    """

    text: str
    dynamic: bool = False
    shape: Shape | None = None
    pieces: tuple[Piece, ...] = ()


UNKNOWN: Final = Piece("unknown")


@dataclass(slots=True)
class Draft:
    """The word being read."""

    text: list[str] = field(default_factory=list)
    started: bool = False
    quoted: bool = False
    dynamic: bool = False
    loose: bool = False
    expanded: bool = False
    first: int | None = None
    last: int = 0
    pieces: list[Piece] = field(default_factory=list)

    def put(self, text: str, *, bare: bool = False) -> None:
        self.text.append(text)
        self.pieces.append(Piece("bare" if bare else "quoted", text))
        self.started = True

    def expand(self, *, whole: bool, piece: Piece | None = UNKNOWN) -> None:
        """Mark text that is known only at run time: part of one word if `whole`, else of any number."""
        self._unknown()
        self.expanded = True
        self.loose = self.loose or not whole
        if piece is not None:
            self.pieces.append(piece)

    def process(self, path: str, script: str) -> None:
        """Add a process substitution: a path that the shell makes up."""
        self.text.append(path)
        self.expand(whole=False, piece=Piece("process", script))

    def glob(self, char: str) -> None:
        self._unknown()
        self.put(char, bare=True)
        self.last = len(self.text)

    def _unknown(self) -> None:
        self.dynamic = self.started = True
        self.first = len(self.text) if self.first is None else self.first
        self.last = len(self.text)

    def word(self) -> Word:
        text = "".join(self.text)
        if self.first is None or self.loose:
            return Word(text, self.dynamic, None, tuple(self.pieces) if self.dynamic else ())
        prefix, suffix = "".join(self.text[: self.first]), "".join(self.text[self.last :])
        return Word(text, self.dynamic, _shape(text, prefix, suffix, expanded=self.expanded), tuple(self.pieces))


def _shape(text: str, prefix: str, suffix: str, *, expanded: bool) -> Shape:
    """Return the shape of a word of which `text` is known; `expanded` says that it holds more than globs."""
    many = is_glob(text)
    while prefix.startswith("./"):
        text, prefix = text[2:], prefix[2:]
    # Behind `$x`, a step such as `..` or nothing may lead anywhere: `rm -rf "$x/.."` can be `rm -rf /`.
    if any(step.rstrip("*?") in _STEPS and step not in _STARS for step in text.split("/")[1:]):
        return Shape("", "", None, many)
    if not expanded:
        return Shape(prefix, suffix, text.count("/"), many)
    # A variable may hold `../..` and leave the folders before it, or may be empty.
    start = prefix if "/" not in prefix else "/" if prefix.startswith("/") else ""
    return Shape(start, suffix.lstrip("/"), None, many)


def plain_path(text: str) -> str:
    """Return a path without the steps that lead nowhere: `//`, `/./` and `/x/..`."""
    if "/" not in text:
        return text
    return "/" + normpath(text).lstrip("/") if text.startswith("/") else normpath(text)


def shape_below(roots: Sequence[str]) -> Shape:
    """Return the shape of whatever is found at or below `roots`."""
    return Shape(commonprefix([plain_path(root) for root in roots]), "", None, many=True)


def may_be_all(wanted: Sequence[str], shapes: Sequence[Shape]) -> bool:
    """Return whether words of these shapes may become all of `wanted`; one word may be several short options."""
    short = [word for word in wanted if word.startswith("-") and not word.startswith("--")]
    others = [word for word in wanted if word not in short]
    return len(shapes) > MAX_SHAPES or _assign((*others, *short[:1]), tuple(shapes))


def _assign(wanted: tuple[str, ...], shapes: tuple[Shape, ...]) -> bool:
    if not wanted:
        return True
    return any(
        _may_be(shape, wanted[0]) and _assign(wanted[1:], shapes if shape.many else shapes[:i] + shapes[i + 1 :])
        for i, shape in enumerate(shapes)
    )


def _may_be(shape: Shape, wanted: str) -> bool:
    if wanted.startswith("-"):
        return shape.prefix[:1] in ("", "-")
    # The shell expands `~` before variables and globs, so no variable can hold one that counts.
    if wanted.startswith("~") and not shape.prefix:
        return False
    literal = wanted.replace("[*]", "").replace("[?]", "")
    if is_glob(literal):
        marks = [i for i, char in enumerate(wanted) if char in "*?[]"]
        head, tail = wanted[: marks[0]], wanted[marks[-1] + 1 :]
        begins = head.startswith(shape.prefix) or shape.prefix.startswith(head)
        return begins and (tail.endswith(shape.suffix) or shape.suffix.endswith(tail))
    wanted = wanted.replace("[*]", "*").replace("[?]", "?")
    return (
        wanted.startswith(shape.prefix)
        and wanted.endswith(shape.suffix)
        and len(wanted) >= len(shape.prefix) + len(shape.suffix)
        and shape.slashes in (None, wanted.count("/"))
    )


def read_balanced(text: str, start: int) -> tuple[str, int]:
    """Return the text from the bracket at `start` to its partner, and the position after; raise ShellError if open."""
    opening = text[start]
    level = 0
    cases = 0
    at = start
    while (found := _BRACKET_MARKS[opening].search(text, at)) is not None:
        at = found.start()
        char = text[at]
        if char in "ce":
            cases += _opens_case(text, start, at)
        elif char == "\\":
            at += 1
        elif char in "'`":
            # A bracket inside quotes closes nothing: `$(echo ')'; curl x)`.
            at = text.find(char, at + 1)
            if at < 0:
                raise ShellError("an unclosed quote")
        elif char == '"':
            at = _end_of_double(text, at)
        elif char == opening:
            level += 1
            if level > _MAX_LEVEL:
                raise ShellError("brackets too deeply nested")
        else:
            # `$(case x in x) curl y;; esac)`: a pattern of `case` ends with a bracket that closes nothing.
            level -= not (cases > 0 and level == 1)
            if not level:
                return text[start + 1 : at], at + 1
        at += 1
    raise ShellError("an unclosed bracket")


def _opens_case(text: str, start: int, at: int) -> int:
    """Return 1 where a `case` begins as a command at `at`, -1 where one ends, else 0."""
    word = text[at : at + 5]
    if word[:4] not in ("case", "esac") or word[4:] not in ("", " ", "\t", "\n", ";", ")", "&", "|"):
        return 0
    before = text[max(start, at - 16) : at].rstrip(" \t")
    begins = before.endswith(_BEFORE_COMMAND) and text[at - 1] in " \t\n;&|({"
    return (1 if word[:4] == "case" else -1) if begins else 0


def _end_of_double(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        raise ShellError("an unclosed quote")
    return at


def read_ansi_c(text: str, at: int) -> tuple[str, int]:
    """Return what `$'…'` whose text starts at `at` stands for, and the position after it; raise ShellError if open."""
    # bash decodes these before it runs a program: `$'cu\x72l'` is curl.
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
