r"""A strict reader of CEF, from ArcSight's own description of it: everything that is not said there is an error."""

from __future__ import annotations

import re

KEY = re.compile(r"(?:^| )([A-Za-z0-9_.]+)=")
HEADER = re.compile(r"((?:[^\\|]|\\[\\|])*)\|")


def parse(line: str) -> tuple[list[str], dict[str, str]]:
    """Return the seven fields of the header, and the extension. Raises ValueError."""
    if re.search("[\x00-\x1f\x7f]", line):
        raise ValueError("a control character")
    fields, position = [], 0
    for _ in range(7):
        found = HEADER.match(line, position)
        if found is None:
            raise ValueError(f"no header field at {position}")
        fields.append(re.sub(r"\\(.)", r"\1", found[1]))
        position = found.end()
    if fields[0] != "CEF:0" or not re.fullmatch(r"\d|10", fields[6]):
        raise ValueError("no CEF version 0, or no severity")
    return fields, _extension(line[position:])


def _extension(text: str) -> dict[str, str]:
    # A key stands at the beginning or behind a space, and its `=` is not escaped.
    starts = [*KEY.finditer(text)]
    if text and (not starts or starts[0].start() != 0):
        raise ValueError("the extension does not begin with a key")
    found: dict[str, str] = {}
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        if start[1] in found:
            raise ValueError(f"the key {start[1]} twice")
        found[start[1]] = _value(text[start.end() : end])
    return found


def _value(text: str) -> str:
    if re.search(r"(?<!\\)(?:\\\\)*=", re.sub(r"\\\\", "", text).replace("\\=", "")):
        raise ValueError("an unescaped =")
    if re.search(r"\\(?![\\=nr])", re.sub(r"\\\\", "", text)):
        raise ValueError("an unknown escape")
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), text)
