"""Puts a rule into the text of a policy file, and leaves the rest of it as it is. Pure.

The text that comes of it is only a draft: it is loaded, tested and tried before anybody can save it.
"""

from __future__ import annotations

import re
from typing import Final

_RULES: Final = re.compile(r"^rules:[ \t]*(?:\[\][ \t]*)?(?:#.*)?$", re.MULTILINE)
_ITEM: Final = re.compile(r"^( *)- ", re.MULTILINE)
_OWN_RULES: Final = re.compile(r"^rules:\n", re.MULTILINE)


def with_rule(text: str, rule: str) -> str:
    """Return a policy file with the rules of another one as its first ones."""
    found = _OWN_RULES.search(rule)
    items = rule[found.end() :].rstrip("\n").split("\n") if found else []
    place = _RULES.search(text)
    if place is None:
        return f"{text.rstrip(chr(10))}\nrules:\n{_indented(items, '  ')}\n"
    head = "rules:" if "[]" in place[0] else place[0]
    after = text[place.end() :]
    first = _ITEM.search(after)
    return f"{text[: place.start()]}{head}\n{_indented(items, first[1] if first else '  ')}{after or chr(10)}"


def _indented(lines: list[str], indent: str) -> str:
    return "\n".join(f"{indent}{line}" if line else "" for line in lines)
