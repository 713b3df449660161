"""The words of a command line, and what they may become when they are expanded. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from posixpath import commonprefix, normpath
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.policy.globs import is_glob

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SHAPES: Final = 16
"""Words of one command that are told apart; among more, any may be what is looked for."""

_MARKS: Final = frozenset("*?[")
_STEPS: Final = frozenset(("", ".", ".."))
_STARS: Final = frozenset("*?")


class Shape(NamedTuple):
    """How a word begins and ends, whatever it is expanded to.

    `slashes` is how many it has, where that is known: a glob adds none. `many`
    says that it may become several words, each of this shape.
    """

    prefix: str
    suffix: str
    slashes: int | None
    as_tuple: bool


class Word(NamedTuple):
    """One word: its text as far as it is known, whether expansion could change it, and to what.

    Without a shape a dynamic word may become anything, and several words.
    """

    text: str
    dynamic: bool = False
    shape: Shape | None = None


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

    def put(self, text: str) -> None:
        self.text.append(text)
        self.started = True

    def expand(self, *, whole: bool) -> None:
        """Note that here stands what only a run can tell: of one word if `whole`, else of any number."""
        self._unknown()
        self.expanded = True
        self.loose = self.loose or not whole

    def glob(self, char: str) -> None:
        self._unknown()
        self.put(char)
        self.last = len(self.text)

    def _unknown(self) -> None:
        self.dynamic = self.started = True
        self.first = len(self.text) if self.first is None else self.first
        self.last = len(self.text)

    def word(self) -> Word:
        text = "".join(self.text)
        if self.first is None or self.loose:
            return Word(text, self.dynamic)
        prefix, suffix = "".join(self.text[: self.first]), "".join(self.text[self.last :])
        return Word(text, self.dynamic, _shape(text, prefix, suffix, expanded=self.expanded))


def _shape(text: str, prefix: str, suffix: str, *, expanded: bool) -> Shape:
    """Return the shape of a word: `text` is what is known of it, `expanded` says that more than globs is in it."""
    as_tuple = not _MARKS.isdisjoint(text)
    while prefix.startswith("./"):
        text, prefix = text[2:], prefix[2:]
    if any(step.rstrip("*?") in _STEPS and step not in _STARS for step in text.split("/")[1:]):
        return Shape("", "", None, as_tuple)
    if not expanded:
        return Shape(prefix, suffix, text.count("/"), as_tuple)
    # What is put in may climb out of the folders before it, and may be nothing or a dot.
    start = prefix if "/" not in prefix else "/" if prefix.startswith("/") else ""
    return Shape(start, suffix.lstrip("/"), None, as_tuple)


def plain_path(text: str) -> str:
    """Return a path without the steps that lead nowhere: `//`, `/./` and `/x/..`."""
    if "/" not in text:
        return text
    return "/" + normpath(text).lstrip("/") if text.startswith("/") else normpath(text)


def shape_below(roots: Sequence[str]) -> Shape:
    """Return the shape of whatever is found at or below `roots`."""
    return Shape(commonprefix([plain_path(root) for root in roots]), "", None, as_tuple=True)


def may_be_all(wanted: Sequence[str], shapes: Sequence[Shape]) -> bool:
    """Return whether words of these shapes may become all of `wanted`; one word may be several short options."""
    short = [word for word in wanted if word.startswith("-") and not word.startswith("--")]
    others = [word for word in wanted if word not in short]
    return len(shapes) > MAX_SHAPES or _assign((*others, *short[:1]), tuple(shapes))


def _assign(wanted: tuple[str, ...], shapes: tuple[Shape, ...]) -> bool:
    if not wanted:
        return True
    return any(
        _may_be(shape, wanted[0]) and _assign(wanted[1:], shapes if shape.as_tuple else shapes[:i] + shapes[i + 1 :])
        for i, shape in enumerate(shapes)
    )


def _may_be(shape: Shape, wanted: str) -> bool:
    if wanted.startswith("-"):
        return shape.prefix[:1] in ("", "-")
    if wanted.startswith("~") and not shape.prefix:
        return False  # a home directory is put in before anything else is
    literal = wanted.replace("[*]", "").replace("[?]", "")
    if is_glob(literal):
        return _may_fit(shape, wanted)
    wanted = wanted.replace("[*]", "*").replace("[?]", "?")
    return (
        wanted.startswith(shape.prefix)
        and wanted.endswith(shape.suffix)
        and len(wanted) >= len(shape.prefix) + len(shape.suffix)
        and shape.slashes in (None, wanted.count("/"))
    )


def _may_fit(shape: Shape, glob: str) -> bool:
    """Return whether a word may fit a glob, by how both begin and end."""
    marks = [i for i, char in enumerate(glob) if char in _MARKS or char == "]"]
    head, tail = glob[: marks[0]], glob[marks[-1] + 1 :]
    begins = head.startswith(shape.prefix) or shape.prefix.startswith(head)
    return begins and (tail.endswith(shape.suffix) or shape.suffix.endswith(tail))
