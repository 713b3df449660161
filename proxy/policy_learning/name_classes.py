"""Names that stand for all names which two policies tell apart. Pure.

Rules know names as given, and as a lax server would take them. A plain name, or a glob with one `*` at its end, leaves
few cases, and these are all here. Other globs are only sampled, and `complete` says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.policy.decide import SESSION_METHODS
from proxy.policy.globs import compile_globs, is_glob

if TYPE_CHECKING:
    from collections.abc import Iterable

FRESH: Final = "zz-other"
_PREFIX: Final = re.compile(r"[a-z0-9_./-]*\*")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./-]+")
_SERVER: Final = re.compile(r"(?!localhost$)[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9-]*)*")
_MARKS: Final = re.compile(r"\*|\?|\[!?(.)[^\]]*\]")


@dataclass(frozen=True, slots=True)
class NameClasses:
    names: tuple[str, ...]
    complete: bool


def name_classes(patterns: Iterable[str]) -> NameClasses:
    """Return one name for each way in which patterns can fit a name and its lax reading."""
    known = set(patterns)
    complete = all(_PREFIX.fullmatch(one) or (not is_glob(one) and _PLAIN.fullmatch(one)) for one in known)
    starts = {one[:-1] for one in known if one.endswith("*") and not is_glob(one[:-1])}
    words = {one for one in known if not is_glob(one)} | {_beyond(start, known) for start in {"", *starts}}
    words |= {_MARKS.sub(lambda mark: mark[1] or "x", one) for one in known if is_glob(one)}
    cased = {
        word[: len(start)] + _shout(word[len(start) :])
        for word in words
        for start in {"", *starts}
        if word.startswith(start)
    }
    return NameClasses(tuple(sorted(words | cased)), complete)


def method_classes(patterns: Iterable[str]) -> NameClasses:
    """Return the same for methods: those of a session are let through by default, so they are cases of their own."""
    known = tuple(dict.fromkeys(patterns))
    tests = [compile_globs([one]) for one in known]
    ways = {tuple(test(method) for test in tests): method for method in sorted(SESSION_METHODS, reverse=True)}
    found = name_classes(["tools/call", "ping", *known])
    return NameClasses(tuple(sorted({*found.names, *ways.values()})), found.complete)


def _beyond(start: str, known: Iterable[str]) -> str:
    """Return a name that begins so, and that no pattern fits but those that fit every such name."""
    others = [one for one in known if not (one.endswith("*") and start.startswith(one[:-1]))]
    fits = compile_globs(others) if others else lambda _name: False
    # No plain name and no prefix that counts as complete has the last one's sign.
    tried = (f"{start}q" if start else FRESH, f"{start}~{FRESH}")
    return next((one for one in tried if not fits(one)), tried[-1])


def _shout(text: str) -> str:
    """Return a text that folds to this one and differs from it."""
    if not text:
        return " "  # a lax reading has none at its end
    return (
        text.upper() if text.upper() != text else "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)
    )


def server_classes(patterns: Iterable[str]) -> NameClasses:
    """Return the same for servers, which rules know by more than one spelling."""
    known = set(patterns)
    complete = all(one == "*" or _SERVER.fullmatch(one) for one in known)
    named = {one for one in known if not is_glob(one)}
    other = next(one for one in (FRESH, *(f"{FRESH}-{n}" for n in range(len(named) + 1))) if one not in named)
    plain = named | {other}
    more = {f"{one}{end}" for one in plain for end in (":443", ":8443", ".")} | {one.upper() for one in plain}
    more |= {_MARKS.sub(lambda mark: mark[1] or "x", one) for one in known if is_glob(one)}
    return NameClasses(tuple(sorted(plain | more)), complete)
