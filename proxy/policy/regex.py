"""RE2, and only RE2: a pattern or a text can never stall the proxy. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import re2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

escape: Callable[[str], str] = re2.escape

_MAX_PROGRAM: Final = 500
"""The size, in RE2's instructions, from which a pattern is searched for by itself."""
_MAX_BUNDLE: Final = 4000


def compile_search(pattern: str) -> Callable[[str], bool]:
    """Return the test whether `pattern` is found anywhere in a text; the same as long as anyone holds it.

    Raises ValueError with RE2's own words where it refuses the pattern.
    """
    known = _KNOWN.get(pattern)
    if known is None:
        known = _KNOWN[pattern] = _make_search(pattern)
    return known


def _make_search(pattern: str) -> Callable[[str], bool]:
    compiled = _compile(pattern)
    match = compiled.Match

    def search(text: str) -> bool:
        data = text.encode()
        return bool(match(_ANYWHERE, data, 0, len(data))[0] != _NOWHERE)

    _SIZES[search] = compiled.ProgramSize()
    return search


class Bundle(NamedTuple):
    """Patterns, and the test whether some of them are found anywhere in a text."""

    patterns: tuple[str, ...]
    search: Callable[[str], bool]


def bundle(patterns: Sequence[str]) -> tuple[Bundle, ...]:
    """Put patterns together, so that a text is gone through once for many of them."""
    return tuple(made for together in _portions(patterns) for made in _join(together))


def _portions(patterns: Sequence[str]) -> Iterator[list[str]]:
    """Keep what is joined small enough for RE2's automaton, which is slow where it outgrows its memory."""
    together: list[str] = []
    total = 0
    for pattern in patterns:
        size = _SIZES[compile_search(pattern)]
        # An open \Q would take in the patterns that come after it.
        if size > _MAX_PROGRAM or r"\Q" in pattern:
            yield [pattern]
            continue
        if total + size > _MAX_BUNDLE:
            yield together
            together, total = [], 0
        together.append(pattern)
        total += size
    if together:
        yield together


def _join(patterns: list[str]) -> Iterator[Bundle]:
    if len(patterns) > 1:
        try:
            yield Bundle(tuple(patterns), compile_search("|".join(f"(?:{pattern})" for pattern in patterns)))
        except ValueError:  # such as names of groups that two of them give
            pass
        else:
            return
    for pattern in patterns:
        yield Bundle((pattern,), compile_search(pattern))


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # what a group holds is never asked
    try:
        return re2.compile(pattern, options)._regexp  # noqa: SLF001  its `search` makes objects that cost more than it
    except re2.error as error:
        detail = error.args[0]
        said = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise ValueError(f"RE2 refuses this pattern: {said}") from None


_KNOWN: Final[WeakValueDictionary[str, Callable[[str], bool]]] = WeakValueDictionary()
_SIZES: Final[WeakKeyDictionary[Callable[[str], bool], int]] = WeakKeyDictionary()
"""How large RE2's programs are, in instructions."""
_ANYWHERE: Final = re2._Anchor.UNANCHORED  # noqa: SLF001
_NOWHERE: Final = (-1, -1)
