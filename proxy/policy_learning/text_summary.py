"""What the texts of one argument have in common, in bounded memory. Pure.

Recorded texts are masked: what stands behind a mask is not known, so a masked text says only what lies before its mask.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

MAX_DISTINCT: Final = 64
MAX_PATHS: Final = 2000
MAX_HOSTS: Final = 100
MASK: Final = re.compile(r"\[(?:secret|pii|custom):[^\[\]]+\]")
_URL: Final = re.compile(
    r"([a-z][a-z0-9+.-]{1,15})://([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::\d{1,5})?(?=[/?#]|$)"
)
_EMAIL: Final = re.compile(r"[A-Za-z0-9._+-]{1,64}@([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)")
# Narrow ones first: the first that all texts fit is the one that a rule asks for.
FORMATS: Final[dict[str, str]] = {
    "a UUID": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "a date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "a time": r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?",
    "digits": r"[0-9]+",
    "hexadecimal digits": r"[0-9a-f]+",
    "a name": r"[A-Za-z0-9_][A-Za-z0-9_.-]*",
    # No part of it is `..`: a dot is followed by something else.
    "a relative path": r"(?:\./)?(?:\.?[A-Za-z0-9_@][A-Za-z0-9_@.+-]*/)*(?:\.?[A-Za-z0-9_@][A-Za-z0-9_@.+-]*)?",
}
# Signs that lead somewhere, or mean something to a shell or a template. Free text that never had one needs none.
SIGNS: Final = "/\\~$`|;<>{}\r\n"
_COMPILED: Final = {name: re.compile(pattern) for name, pattern in FORMATS.items()}


@dataclass(slots=True)
class TextSummary:
    """The texts seen at one place. Sets stop growing at their bounds, and then say so by being None."""

    count: int = 0
    masked: int = 0
    longest: int = 0
    values: Counter[str] | None = field(default_factory=Counter)
    paths: set[str] | None = field(default_factory=set)
    hosts: set[str] | None = field(default_factory=set)
    schemes: set[str] = field(default_factory=set)
    domains: set[str] | None = field(default_factory=set)
    formats: set[str] = field(default_factory=lambda: set(FORMATS))
    signs: set[str] = field(default_factory=set)

    def add(self, text: str) -> None:
        self.count += 1
        self.longest = max(self.longest, len(text))
        # A rule judges what a text stands for as well.
        whole = text + unquote(text) if "%" in text else text
        self.signs.update(one for one in SIGNS if one in whole)
        mask = MASK.search(text)
        known = text[: mask.start()] if mask else text
        if mask:
            self.masked += 1
            self.values, self.formats, self.domains = None, set(), None
        elif self.values is not None:
            self.values[text] += 1
            if len(self.values) > MAX_DISTINCT:
                self.values = None
        self.formats = {name for name in self.formats if _COMPILED[name].fullmatch(text)}
        self._add_url(known, whole=mask is None)
        self.paths = _added(self.paths, _known_path(known, whole=mask is None), MAX_PATHS)
        email = _EMAIL.fullmatch(text)
        self.domains = _added(self.domains, email[1].lower() if email else None, MAX_HOSTS)

    def _add_url(self, known: str, *, whole: bool) -> None:
        found = _URL.match(known)
        # What a mask may have cut short is no host.
        if found is not None and (whole or found.end() < len(known)):
            self.schemes.add(found[1])
            self.hosts = _added(self.hosts, found[2].lower(), MAX_HOSTS)
        else:
            self.hosts = None


def _known_path(known: str, *, whole: bool) -> str | None:
    """Return the absolute path of a text, or the folder before its mask; None where it is no plain path."""
    path = known if whole else known.rpartition("/")[0]
    plain = path.startswith("/") and not path.startswith("//") and "\0" not in path and len(path) < 1024
    return path if plain and "/.." not in path and "\n" not in path else None


def _added(known: set[str] | None, value: str | None, most: int) -> set[str] | None:
    """Return a set with one more value; None where there is none, or where it would have too many."""
    if known is None or value is None:
        return None
    known.add(value)
    return known if len(known) <= most else None
