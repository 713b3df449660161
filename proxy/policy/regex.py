"""Regular expressions by RE2 alone: no pattern and no text can stall the proxy. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import re2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

escape: Callable[[str], str] = re2.escape

# In RE2's instructions. A larger pattern is searched for by itself.
_MAX_PROGRAM: Final = 500
_MAX_BUNDLE: Final = 4000


def compile_search(pattern: str) -> Callable[[str], bool]:
    """Return the test whether `pattern` is found anywhere in a text; the same function while one is in use.

    Raises ValueError with RE2's message where RE2 refuses the pattern.
    """
    known = _KNOWN.get(pattern)
    if known is not None:
        return known
    compiled = _compile(pattern)
    match = compiled.Match

    def search(text: str) -> bool:
        data = text.encode()
        return bool(match(_ANYWHERE, data, 0, len(data))[0] != _NOWHERE)

    _SIZES[search] = compiled.ProgramSize()
    _KNOWN[pattern] = search
    return search


class Bundle(NamedTuple):
    """Patterns, and the test whether some of them are found anywhere in a text."""

    patterns: tuple[str, ...]
    search: Callable[[str], bool]


def bundle(patterns: Sequence[str]) -> tuple[Bundle, ...]:
    """Join patterns, so that one search of a text covers many of them."""
    return tuple(made for together in _portions(patterns) for made in _join(together))


def _portions(patterns: Sequence[str]) -> Iterator[list[str]]:
    # Small enough for RE2's automaton, which becomes slow where it outgrows its memory.
    together: list[str] = []
    total = 0
    for pattern in patterns:
        size = _SIZES[compile_search(pattern)]
        # An open \Q would quote the patterns that follow.
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
        except ValueError:  # for example where two of them name a group alike
            pass
        else:
            return
    for pattern in patterns:
        yield Bundle((pattern,), compile_search(pattern))


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # no caller needs the groups, and RE2 is faster without
    try:
        # The wrapper's own `search` makes match objects, which cost more than the search.
        return re2.compile(pattern, options)._regexp  # noqa: SLF001
    except re2.error as error:
        detail = error.args[0]
        said = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise ValueError(f"RE2 refuses this pattern: {said}") from None


_KNOWN: Final[WeakValueDictionary[str, Callable[[str], bool]]] = WeakValueDictionary()
_SIZES: Final[WeakKeyDictionary[Callable[[str], bool], int]] = WeakKeyDictionary()
_ANYWHERE: Final = re2._Anchor.UNANCHORED  # noqa: SLF001
_NOWHERE: Final = (-1, -1)
