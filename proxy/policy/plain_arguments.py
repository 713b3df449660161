"""A short way through arguments that are words and numbers alone, as those of most calls are. Pure, no I/O.

It is a proof and no guess: what is not plain takes the long way, and a test compares the two.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from proxy.policy.argument_names import argument_kind, tool_kind
from proxy.policy.eval_context import EvalContext, fold_key
from proxy.policy.text import has_one_reading, looks_like_json
from proxy.policy.value_forms import starts_with_program

_MOST: Final = 64
_SHORT_NAMES: Final = 512
_NUMBERS: Final = (int, float, bool, type(None))
# Nothing that a path, a URL, an address or JSON inside a string is known by, in one line and with one reading. A dot
# ends a sentence.
_WORD: Final = r"[^./\\~$%:{\[\"\x00-\x1f\x7f-\U0010ffff]*"
_WORDS: Final = re.compile(rf"[A-Za-z0-9]{_WORD}(?:\. {_WORD})*\.?")


class PlainArguments(NamedTuple):
    """The strings of plain arguments, and whether no selector (`@paths` and the others) would choose one of them."""

    texts: tuple[str, ...]
    selects_nothing: bool


def read_plainly(context: EvalContext) -> PlainArguments | None:
    """Return a call's arguments where they are numbers and strings with one reading each, or objects of such.

    None for all others.
    """
    found: PlainArguments | bool | None = context.memo.get("=plain", False)
    if found is False:
        try:
            found = _read(context)
        except TypeError:  # what is no JSON
            found = None
        context.memo["=plain"] = found
    assert not isinstance(found, bool)
    return found


def _read(context: EvalContext) -> PlainArguments | None:
    texts: list[str] = []
    inert = not tool_kind(context.tool).runs
    objects = [context.arguments]
    for members in objects:  # it grows by the objects in them
        if type(members) is not dict or len(members) > _MOST:
            return None
        prose = _prose_of((*members,)) if len("".join(members)) <= _SHORT_NAMES else None
        for at, value in enumerate(members.values()):
            kind = type(value)
            if kind is str:
                texts.append(value)
                how = _how_plain(value)
                if how is None:
                    return None
                inert = inert and how and prose is not None and (prose[at] or not _may_run(value))
            elif kind is dict:
                objects.append(value)
            elif kind not in _NUMBERS:
                return None
        inert = inert and prose is not None
        if len(objects) > _MOST:
            return None
    return PlainArguments(tuple(texts), inert)


def _how_plain(text: str) -> bool | None:
    """Return whether a text has words alone; None where it may have more than one reading."""
    if _WORDS.fullmatch(text) is not None:
        return True
    return False if has_one_reading(text) and not looks_like_json(text) else None


def _may_run(text: str) -> bool:
    return " " in text and starts_with_program(text)


@lru_cache(maxsize=1024)
def _prose_of(names: tuple[str, ...]) -> tuple[bool, ...] | None:
    """Return for each name whether it means prose; None where one of them says that its value is something else."""
    kinds = [argument_kind(fold_key(name)) for name in names]
    if any(kind.path or kind.host or kind.command or kind.script or kind.arguments for kind in kinds):
        return None
    return tuple(kind.prose for kind in kinds)
