"""Text from agents and servers, made safe to look at. Pure.

The templates escape HTML. What is left are characters that show nothing, or change the order or place of what is
around them: a reader who approves must see what is there.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any, Final

# Control, format (bidirectional overrides, zero-width), surrogate and private characters; line and paragraph ends.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks that show nothing, whatever their category says.
_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
MAX_PREVIEW: Final = 160


def visible(value: Any, *, lines: bool = False) -> str:
    """Return text with every character that shows nothing written as its escape; `lines` keeps line breaks."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char, lines=lines) for char in text)


def _shown(char: str, *, lines: bool) -> str:
    if char == "\n" and lines:
        return char
    hidden = unicodedata.category(char) in _HIDDEN or char in _BLANK or _is_variation(char)
    # A space of another width may pass for no space, or for a plain one.
    if hidden or (char != " " and unicodedata.category(char) == "Zs"):
        return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"
    return char


def _is_variation(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def pretty(value: Any) -> str:
    """Return a JSON value on several lines, every character of it visible."""
    return visible(json.dumps(value, indent=2, ensure_ascii=False, default=str), lines=True)


def preview(value: Any, limit: int = MAX_PREVIEW) -> str:
    """Return the beginning of a JSON value on one line."""
    if isinstance(value, dict):
        parts, length = [], 0
        for name, one in value.items():
            parts.append(f"{name}: {_short(one, limit)}")
            length += len(parts[-1])
            if length > limit:
                break
        text = ", ".join(parts)
    else:
        text = "" if value is None else _short(value, limit)
    text = text[: limit + 1]
    return visible(text if len(text) <= limit else f"{text[:limit]}…")


def _short(value: Any, limit: int) -> str:
    if isinstance(value, str):
        return value[: limit + 1]
    return json.dumps(value, ensure_ascii=False, default=str)[: limit + 1]
