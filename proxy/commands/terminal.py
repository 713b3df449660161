"""Words from the wire, on a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

# What JSON may hold as it is, and a terminal or a reader of lines takes for something else.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def printable(value: Any) -> str:
    """Show what came over the wire; a control character could drive the reader's terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value or ""))


def printable_lines(value: Any) -> str:
    """Show several lines of such words, as lines."""
    return "\n".join(map(printable, str(value or "").split("\n")))


def format_json(value: Any) -> str:
    """Return a value as one line of JSON that no terminal obeys."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
