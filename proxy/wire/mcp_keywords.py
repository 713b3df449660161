"""Words that only MCP messages have, for what no parser reads or none can afford to. Pure."""

from __future__ import annotations

import re

from proxy.wire.mcp import METHOD_PREFIXES

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|/)")
# White space, and what lenient comparisons drop.
_BLANK = r"[\s\x00-\x20\x7f\xad\u200b-\u200f\u2060-\u2064\ufeff]*+"
# Possessive throughout, and folded text instead of IGNORECASE: one pass, without going back.
_WORDS = re.compile(rf"""["']{_BLANK}(?:jsonrpc|(?:{"|".join(METHOD_PREFIXES)})[a-z_/]++){_BLANK}["']""")


def has_mcp_words(text: str) -> bool:
    """Return whether `text`, with JSON's escapes undone, holds a word that only MCP messages have."""
    return _WORDS.search(_ESCAPE.sub(_unescape, text).casefold()) is not None


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else match[0][1:]
