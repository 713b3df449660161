"""Finds the words that a server's own source compares with: texts, and variables with their values. Pure.

What waits for a text that nobody guesses has that text in its source, beside a comparison or in a list. A fuzzer calls
such a list a dictionary. The forms are those of Python and JavaScript; what they find too much costs a call, no more.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_WORDS = 24
MAX_VARIABLES = 40
# So many characters after a tool's name are most likely its own code.
NEAR = 3000
# Bounded in each part: the source is the server's, and may be written to stall us.
_TEXT = r"""(?<![\w\\])[rbu]?(?:"([^"\\\n{}]{1,80})"|'([^'\\\n{}]{1,80})')"""
_ANY = r"""(?:"[^"\\\n]{0,80}"|'[^'\\\n]{0,80}')"""
_CASES = r"(?:\??\.\w{1,20}\(\)){0,3}"
# `action`, `args.action`, `args["action"]`, `args.get("action", "")`: what is compared.
_SUBJECT = r"""(?:\b(\w{1,40})|\[["'](\w{1,40})["']\]|\.get\(\s*["'](\w{1,40})["'][^()\n]{0,20}\))""" + _CASES
_SEARCHES = r"\??\.(?:startswith|endswith|startsWith|endsWith|includes|indexOf|find|index|count|has)\("
_COMPARED = (
    re.compile(rf"{_SUBJECT}\s{{0,4}}(?:===?|!==?)\s{{0,4}}{_TEXT}"),
    re.compile(rf"{_SUBJECT}{_SEARCHES}\s{{0,4}}\(?{_TEXT}"),
)
_ASKED = (
    re.compile(rf"{_TEXT}\s{{1,4}}(?:not\s)?in\s{{1,4}}(\w{{1,40}})"),
    re.compile(rf"{_TEXT}\s{{0,4}}===?\s{{0,4}}(\w{{1,40}})"),
    re.compile(rf"\bcase\s{{1,4}}{_TEXT}()"),
)
_MORE = rf"(?:\s{{0,40}},\s{{0,40}}{_ANY})"
_LIST = re.compile(
    rf"(?:[\[{{]\s{{0,40}}{_ANY}{_MORE}{{0,40}}|\(\s{{0,40}}{_ANY}{_MORE}{{1,40}})\s{{0,40}},?\s{{0,40}}[\])}}]"
)
_CONSTANT = re.compile(rf"\b[A-Z][A-Z0-9_]{{2,40}}(?::\s?\w{{1,20}})?\s{{0,4}}=\s{{0,4}}{_TEXT}")
_KEY = re.compile(rf"{_TEXT}\s{{0,4}}:")
_EACH = re.compile(_TEXT)
# An identifier beside its name, and a key of a table of records.
_RECORDS = re.compile(
    r"""(?i:\b(?:\w{1,20}_)?id["']?\s{0,4}[:=]\s{0,4}["']?([\w-]{0,16}\d[\w-]{0,16})\b)"""
    r"""|["']?\b([\w-]{0,16}\d[\w-]{0,16})["']?\s{0,4}:\s{0,4}\{"""
)
_NAME = r"[A-Z][A-Z0-9_]{1,60}"
# A variable, and perhaps what it is compared with.
_LOOKED_UP = re.compile(
    rf"""(?:environ(?:\.get\(|\[)|getenv\(|process\.env(?:\.|\[))\s{{0,4}}["']?({_NAME})["']?"""
    rf"""(?:\s{{0,4}},\s{{0,4}}{_ANY})?[)\]]?{_CASES}(?:\s{{0,4}}===?\s{{0,4}}{_TEXT})?"""
)
_ENVIRONMENT = re.compile(r"\b(?:environ|getenv|process\.env)\b")
_PAIR = re.compile(rf"""["']({_NAME})["']\s{{0,4}}:\s{{0,4}}{_TEXT}""")
# A server that is given such a thing and finds nothing there ends, and shows nothing at all.
_PLACE = re.compile(
    r"^(?:PYTHON|NODE_|LD_|DYLD_|LC_|NPM_)|"  # of the interpreter, which would not start
    r"(?:^|_)(?:\w*PATH|\w*DIR|\w*FILE|FOLDER|HOME|ROOT|UR[IL]S?|HOSTS?|PORTS?|ADDR\w*|\w*PROXY|CERTS?|CA|CONFIG|EDITOR|"
    r"PAGER|SHELL|BROWSER|COMMAND|CMD|BIN|EXE|PROGRAM|SOCK\w*|DISPLAY|LEVEL|FORMAT|ENCODING|LOCALE|TZ|TIMEOUT|LIMIT|"
    r"SIZE|MAX|MIN|COUNT|NUM|SECONDS|MS|OPTIONS|TRANSPORT)(?:_|$)"
)


@dataclass(frozen=True, slots=True)
class SourceWord:
    """A text of a source, and the name of what is compared with it, if there is one."""

    text: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    word: SourceWord
    rank: int
    place: int


def source_words(sources: Sequence[str], tool: str) -> tuple[SourceWord, ...]:
    """Return the words that a tool may wait for, the likeliest first: those beside its name, and in comparisons."""
    ranked: list[tuple[int, int, int, SourceWord]] = []
    for number, source in enumerate(sources):
        named = [each.end() for each in re.finditer(rf"\b{re.escape(tool[:100])}\b", source)]
        for found in _words(source):
            at = bisect_right(named, found.place)
            near = at > 0 and found.place - named[at - 1] <= NEAR
            ranked.append((found.rank + (0 if near else 2), number, found.place, found.word))
    ranked.sort(key=lambda each: each[:3])
    first: dict[str, SourceWord] = {}
    for *_, each in ranked:
        first.setdefault(each.text, each)
    return tuple(first.values())[:MAX_WORDS]


def _words(source: str) -> Iterator[_Found]:
    for pattern in _COMPARED:
        for found in pattern.finditer(source):
            subject, text = found[1] or found[2] or found[3], found[4] or found[5]
            yield _Found(SourceWord(text, subject), 0, found.start())
    for pattern in _ASKED:
        for found in pattern.finditer(source):
            yield _Found(SourceWord(found[1] or found[2], found[3] or ""), 0, found.start())
    for found in _LIST.finditer(source):
        for each in _EACH.finditer(found[0]):
            yield _Found(SourceWord(each[1] or each[2]), 1, found.start())
    for pattern, rank in ((_CONSTANT, 4), (_KEY, 5)):
        for found in pattern.finditer(source):
            yield _Found(SourceWord(found[1] or found[2]), rank, found.start())


def source_ids(sources: Sequence[str]) -> tuple[str, ...]:
    """Return the identifiers of the records that sources hold: `"id": 1001`, `1001: {`, `"C-17": {`."""
    found = (each[1] or each[2] for source in sources for each in _RECORDS.finditer(source))
    return tuple(dict.fromkeys(found))[:MAX_WORDS]


def source_variables(sources: Sequence[str]) -> dict[str, str]:
    """Return the variables that sources look up, each with the value that it is compared with, or a switch's."""
    found: dict[str, str] = {}
    for source in sources:
        if not _ENVIRONMENT.search(source):
            continue
        for each in _LOOKED_UP.finditer(source):
            value = each[2] or each[3]
            if value is not None:
                found[each[1]] = value
            elif not _PLACE.search(each[1]):
                found.setdefault(each[1], "1")
        for each in _PAIR.finditer(source):  # of a table that is walked through
            found.setdefault(each[1], each[2] or each[3])
    return dict(list(found.items())[:MAX_VARIABLES])
