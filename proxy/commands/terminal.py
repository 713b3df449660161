"""Words from the wire, on a terminal."""

from __future__ import annotations

from typing import Any


def printable(value: Any) -> str:
    """Show what came over the wire; a control character could drive the reader's terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value or ""))


def printable_lines(value: Any) -> str:
    """Show several lines of such words, as lines."""
    return "\n".join(map(printable, str(value or "").split("\n")))
