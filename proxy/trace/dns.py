"""Reads the names that are asked for in a DNS message. Pure, and never raises."""

from __future__ import annotations

PORTS = frozenset({53, 5353, 5355})
HEADER = 12
MAX_QUESTIONS = 16
MAX_LABEL = 63


def questions(data: bytes, *, framed: bool = False) -> list[str]:
    """Return the names that a query asks for; none where it is no query. `framed`: with its length, as over TCP."""
    if framed:
        data = data[2:]
    if len(data) < HEADER or data[2] & 0x80:
        return []
    names: list[str] = []
    at = HEADER
    for _ in range(min(int.from_bytes(data[4:6]), MAX_QUESTIONS)):
        name, at = _name(data, at)
        if name is None:
            break
        names.append(name)
        at += 4
    return list(dict.fromkeys(names))


def _name(data: bytes, at: int) -> tuple[str | None, int]:
    """Read a name at `at`; return where what follows begins. A name that is cut off is given as far as it goes."""
    labels: list[str] = []
    while at < len(data):
        size = data[at]
        if size == 0:
            return ".".join(labels) or ".", at + 1
        if size > MAX_LABEL:
            return None, at
        labels.append(data[at + 1 : at + 1 + size].decode("ascii", "backslashreplace"))
        at += 1 + size
    return (".".join(labels) if labels else None), at
