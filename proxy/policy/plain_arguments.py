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
    """Return a call's arguments where they are numbers and strings with one reading each; None for all others."""
    found: PlainArguments | bool | None = context.memo.get("=plain", False)
    if found is False:
        found = context.memo["=plain"] = _read(context)
    assert not isinstance(found, bool)
    return found


def _read(context: EvalContext) -> PlainArguments | None:
    arguments = context.arguments
    if type(arguments) is not dict or len(arguments) > _MOST:
        return None
    texts: list[str] = []
    prose = _prose_of((*arguments,)) if sum(map(len, arguments)) <= _SHORT_NAMES else None
    inert = prose is not None and not tool_kind(context.tool).runs
    for at, text in enumerate(arguments.values()):
        kind = type(text)
        if kind is str:
            texts.append(text)
            if _WORDS.fullmatch(text) is None:
                if not has_one_reading(text) or looks_like_json(text):
                    return None
                inert = False
            elif inert and prose is not None and not prose[at]:
                inert = " " not in text or not starts_with_program(text)
        elif kind not in _NUMBERS:
            return None
    return PlainArguments(tuple(texts), inert)


@lru_cache(maxsize=1024)
def _prose_of(names: tuple[str, ...]) -> tuple[bool, ...] | None:
    """Return for each name whether it means prose; None where one of them says that its value is something else."""
    kinds = [argument_kind(fold_key(name)) for name in names]
    if any(kind.path or kind.host or kind.command or kind.script or kind.arguments for kind in kinds):
        return None
    return tuple(kind.prose for kind in kinds)
