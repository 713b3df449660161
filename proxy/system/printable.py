"""Makes text from servers and agents safe to print. Pure."""

from __future__ import annotations

from typing import Any


def printable(value: Any) -> str:
    """Return text from a server or agent with control characters escaped: they could drive the reader's terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value or ""))


def printable_lines(value: Any) -> str:
    return "\n".join(map(printable, str(value or "").split("\n")))
