"""Judging a body without parsing it: could it begin as JSON, does it hold words of MCP? Pure, and one pass each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from proxy.wire.mcp import METHOD_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bytes that some server may skip before a JSON value: white space of any alphabet,
# byte order marks, and the zero bytes of UTF-16 and UTF-32.
SKIPPED = bytes(range(0x21)) + bytes.fromhex("7f85a0c2e19a8081828384858687888a8ba8a9af9fe380e2effebbbfffad8e")

# Possessive throughout: a body of megabytes that almost matches is passed over once, never gone back into.
_SKIP = b"[" + re.escape(SKIPPED) + b"]*+"


def _wide(word: bytes) -> bytes:
    """Return a pattern for `word` in UTF-8, and among the zero bytes of UTF-16 and UTF-32."""
    return rb"\0*+".join(word[i : i + 1] for i in range(len(word)))


_NUMBER = rb"-?+\0*+(?:[0-9][0-9.eE+\0-]*+|" + _wide(b"Infinity") + b")"
_SCALAR = b"(?:" + b"|".join([_NUMBER, *map(_wide, (b"true", b"false", b"null", b"NaN"))]) + b")"
_SCALARS = re.compile(_SKIP + b"((?:" + _SCALAR + _SKIP + b")*+)")
_PART_OF_A_WORD = re.compile(rb"[-a-zA-Z\0]{0,32}\Z")

# Escaped quotes stay as they are: what they surround is text inside a string.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([^\"'\\bfnrtux]))", re.DOTALL)
# White space, and what lenient comparisons drop.
_BLANK = r"[\s\x00-\x20\x7f\xad\u200b-\u200f\u2060-\u2064\ufeff]*+"
# On folded text instead of with IGNORECASE, and possessive: one pass, without going back.
_METHOD = rf"(?:{'|'.join(METHOD_PREFIXES)})[a-z_/]++"
# In quotes of its own; or without any, as a key or as the value of one.
_WORDS = re.compile(
    rf"""["']{_BLANK}(?:jsonrpc|{_METHOD}){_BLANK}["']|[{{,;\r\n]{_BLANK}(?:method{_BLANK}["']?+{_BLANK}(?:=>|[:=]){_BLANK}["'\[{{]*+{_METHOD}"""
    rf"""|jsonrpc{_BLANK}(?:=>|[:=]))"""
)


def could_be_json(body: bytes) -> bool:
    """Return whether some server may find a JSON object, array or string (or a comment) at the start of `body`."""
    if body.startswith((b"{", b"[", b'"')):
        return True
    # Numbers and words such as `true` may stand before it: a streaming decoder reads value after value.
    scalars = _SCALARS.match(body)
    assert scalars is not None, "the pattern matches nothing at all, too"
    start = body[scalars.end() : scalars.end() + 8].replace(b"\0", b"")[:2]
    if start[:1] == b"/":
        # Gson and others skip comments. A date such as 1/2/2024 is none.
        return not scalars[1] or start in (b"//", b"/*")
    return start[:1] in (b"{", b"[", b'"')


# Words before a colon (YAML, HJSON), and what else stands before a message that is no JSON: guards, comments, quotes.
# No parser of those skips other bytes before them than blanks and byte order marks.
_LENIENT = re.compile(
    rb"(?:[\s\x1c-\x1f]|\xc2[\x85\xa0]|\xe2\x80[\x80-\x8f\xa8\xa9]|\xef\xbb\xbf)*+"
    rb"(?:[)\]}#%'`]|//|/\*|---|[-?][ \t]|[!&]|<<|[^\s{}\[\],:<\0-\x1f\x7f][^\r\n:{}<\0]{0,200}:)"
    rb"|\xff\xfe|\xfe\xff|\0\0\xfe\xff"
)


def could_be_lenient(body: bytes) -> bool:
    """Return whether `body`, which does not begin as JSON, may begin as a message to a more lenient parser."""
    return _LENIENT.match(body) is not None


def is_string(body: bytes) -> bool:
    """Return whether `body` begins as a JSON string."""
    return body.lstrip(SKIPPED)[:1] == b'"'


def is_undecided(head: bytes) -> bool:
    """Return whether `head`, the first bytes of a body, leaves open what `could_be_json` says of the whole."""
    scalars = _SCALARS.match(head)
    return scalars is not None and _PART_OF_A_WORD.match(head, scalars.end()) is not None


def has_mcp_words(text: str) -> bool:
    """Return whether `text`, with JSON's escapes decoded, holds a quoted word that only MCP messages have."""
    unescaped = _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)) if not found[3] else found[3], text)
    return _WORDS.search(unescaped.casefold()) is not None


# What readers of lines end them with beside CR and LF: Python's `splitlines`, and U+2028 for Node's `readline`.
_OTHER_ENDS = re.compile(rb"\xc2\x85|\xe2\x80[\xa8\xa9]|(?<![\x80-\xff])\x85")
_TO_LINE_FEED = bytes.maketrans(b"\x0b\x0c\x1c\x1d\x1e", b"\n" * 5)


def line_views(text: bytes) -> Iterator[bytes]:
    """Return `text`, and where other characters may end a line in it, too, what it is with line feeds for them."""
    yield text
    other = _OTHER_ENDS.sub(b"\n", text.translate(_TO_LINE_FEED))
    if other != text:
        yield other
