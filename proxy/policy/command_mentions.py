"""Names of programs inside the words of other programs. Pure, no I/O.

A program that no table knows may run what its words name: `anything --on-exit=curl`. So a word of such a program
counts as a program where a program could stand in it. Only programs that are known to take data are left out.
"""

from __future__ import annotations

import re
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from proxy.policy import wrappers
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where a command may begin inside a word: `--x=curl`, `system("curl")`, `a;curl`, `exec:curl`, `!curl`, `%(curl`.
_BEGINNINGS: Final = re.compile(r"(?:^|[=(;|&!`\"'{,:\n<>@^])[ \t]*([\w.+/~\\-]+)(?!://)\b")
_SHORTEST: Final = 5
_LITERAL: Final = re.compile(r"""'((?:[^'\\]|\\.){1,2000})'|"((?:[^"\\]|\\.){1,2000})"|`([^`]{1,2000})`""", re.DOTALL)
_STARTER: Final = re.compile(
    r"system|exec|popen|spawn|subprocess|child_process|\bqx\b|`|\bsh\b|shell|Runtime|command|(?<!\|)\|(?!\|)"
)
_SED_RUN: Final = re.compile(r"(?:^|[\s;{}\d$/!,|])e[ \t\\]+([^\n]+)")
# How programs of awk and sed begin, and no command line.
_EDITING: Final = re.compile(r"\s*(?:/|\{|\$(?:[\d!,]|\{\w+\s|[pdq]\b)|\d|!|BEGIN|END|NR|[sy]\W)")
_MAX_SCRIPTS: Final = 50
_MARKS: Final = frozenset(" ;|&$`\n(")


def program_name(text: str) -> str:
    """Return the name of a program without folder, case and Windows suffix."""
    name = fold(text.replace("\\", "/").rstrip("/").rpartition("/")[2])
    for suffix in wrappers.SUFFIXES:
        name = name.removesuffix(suffix)
    return name or fold(text)


def names_in(text: str) -> set[str]:
    """Return every name in a text that may be a program's."""
    # Once with paths whole and once in parts: `s/x/curl/e` of sed has the name between slashes.
    cleaned = "".join(c if c.isalnum() or c in "_.+-/" else " " for c in text)
    names = {program_name(part) for part in cleaned.split()}
    return names | {program_name(part) for part in cleaned.replace("/", " ").split()}


def leading_names(text: str) -> set[str]:
    """Return the names in a text that stand where a command could begin; prose names none but its first word."""
    names = {program_name(match[1]) for match in _BEGINNINGS.finditer(text)}
    if text.startswith("-") and not text.startswith("--") and len(text) > _SHORTEST:
        # A value without a blank: `man -Pcurl`. Shorter ones are letters of options: `-inc` holds no nc.
        names.add(program_name(text[2:]))
    return names


def is_script(text: str) -> bool:
    """Return whether a word is more than a name: it may be a command line of its own."""
    return not _MARKS.isdisjoint(text)


def may_hold_program(name: str, text: str) -> bool:
    """Return whether an argument may name a program to run, whatever program it is for."""
    # Such as `git -c core.pager=curl log`, `-c alias.x='!curl y'`, `tar --checkpoint-action=exec=curl`.
    lowered = text.lower()
    return (
        any(mark in lowered for mark in wrappers.RUNNING_MARKS)
        or text.startswith("!")
        or "=!" in text
        or (name == "git" and ("=" in text or text.startswith("ext::")))
    )


def starts_programs(code: str, *, sed: bool = False) -> bool:
    """Return whether code for an interpreter seems to start programs."""
    return (_SED_RUN if sed else _STARTER).search(code) is not None


def scripts_in(text: str, *, sed: bool = False) -> Iterator[str]:
    """Return the parts of code or of an option's value that may be command lines."""
    if not _EDITING.match(text):
        yield text
    if text.startswith((":", "!")):
        yield text.lstrip(":! \t")
    # What follows each of the first signs: `-c alias.x=!curl`, `--checkpoint-action=exec=curl`.
    rest = text
    for _ in range(3):
        _, equals, rest = rest.partition("=")
        if equals:
            yield rest.lstrip("!")
    found = chain(_LITERAL.finditer(text), _SED_RUN.finditer(text) if sed else ())
    yield from (match[match.lastindex or 0] for match in islice(found, _MAX_SCRIPTS))
