"""Finds the choices and examples that a description lists for a parameter, as in "(system, access, error)". Pure.

Many schemas say no more than that a parameter is a text, and the words it takes stand in the description beside it.
With any other word such a tool only answers that it does not know it.
"""

from __future__ import annotations

import re

MAX_CHOICES = 12
MAX_READ = 1 << 14
_WORD = r"['\"`]?(?!e\.g|i\.e|eg\b|etc\b)[A-Za-z0-9][\w./+-]{0,40}['\"`]?"
_BETWEEN = r"(?:\s*[,|]\s*(?:(?:or|and)\s+)?|\s+or\s+|\s+and\s+)"
_LIST = rf"{_WORD}(?:{_BETWEEN}{_WORD}){{1,{MAX_CHOICES - 1}}}"
_INTRODUCED = r"(?i:(?:either|one of|options?|values?|choices)\s*:?\s*)?"
_FOR_EXAMPLE = r"(?i:e\.g\.?,?|eg|such as|for example,?|like)"
_ANNOUNCED = r"(?i:one of|either|options|choices|(?:valid|allowed|possible) values|supports|supported|available)"
# A list stands in brackets, or is announced, and the sentence ends with it.
_LISTS = (
    re.compile(rf"\({_INTRODUCED}({_LIST})(?:,?\s*etc\.?)?\s*\)"),
    re.compile(rf"\b{_ANNOUNCED}(?:\s+are|\s+\w+:|:)?\s*[\[(]?\s*({_LIST})\s*(?:[\])]|\.(?:\s|$)|;|\n|$)"),
    re.compile(rf":\s*({_LIST})\s*(?:\n|$)"),
)
_EXAMPLES = re.compile(rf"\({_FOR_EXAMPLE}:?\s+({_LIST})(?:,?\s*etc\.?)?\s*\)")
_QUOTED_EXAMPLE = re.compile(rf"{_FOR_EXAMPLE}\s+['\"`]([^'\"`\n]{{1,80}})['\"`]")
_SPLIT = re.compile(_BETWEEN)
# The line of a parameter, in the forms of Google, Sphinx and Markdown, with the lines that continue it.
_BESIDE = (
    r"(?im)^[ \t]*(?:[-*]\s*|:param\s+|@param\s+)?[`'\"]?{name}[`'\"]?\s*(?:\([^)\n]*\))?\s*[:-]\s*"
    r"(.+(?:\n[ \t]{{6,}}.+)*)"
)


def described(tool_description: str, name: str, own: str) -> str:
    """Return what is said of a parameter: its own description, and its line in the tool's."""
    if len(name) > 80:
        return own
    found = re.search(_BESIDE.format(name=re.escape(name)), tool_description[:MAX_READ])
    return f"{own}\n{found[1]}" if found else own


def listed_choices(text: str) -> tuple[str, ...]:
    """Return the choices that a parameter's description lists, in their order; none is usual."""
    found = next((match for pattern in _LISTS if (match := pattern.search(text[:MAX_READ]))), None)
    return _items(found[1]) if found else ()


def listed_examples(text: str) -> tuple[str, ...]:
    """Return the examples that a parameter's description gives: values that are likely, among others."""
    found = _EXAMPLES.search(text[:MAX_READ])
    return _items(found[1]) if found else tuple(dict.fromkeys(_QUOTED_EXAMPLE.findall(text[:MAX_READ])))[:MAX_CHOICES]


def _items(found: str) -> tuple[str, ...]:
    words = (word.strip("'\"` .") for word in _SPLIT.split(found))
    return tuple(dict.fromkeys(word for word in words if word))[:MAX_CHOICES]
