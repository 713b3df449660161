"""Names as the most lenient parser compares them: keys, methods, and the words of MCP anywhere in a text. Pure."""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import TYPE_CHECKING, Final

from proxy.wire import a2a
from proxy.wire.jsonrpc import fold_key, plain
from proxy.wire.mcp import METHOD_PREFIXES, PLAIN_METHODS, SURELY_MCP

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_WORD: Final = 400
"""Characters up to which a key or a method is looked at, escapes and all."""
# Ruby, JSON5 and others drop the backslash of an escape that they do not know: `c\all` is `call`.
_JSON_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(\r\n|.))", re.DOTALL)
# JSON5, YAML and JavaScript know more of them.
_WIDE_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,8})\}|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(\r\n|.))",
    re.DOTALL,
)
_JSON_LETTERS: Final[dict[str, str]] = dict.fromkeys("bfnrt", "") | dict.fromkeys("\r\n", "")
_WIDE_LETTERS: Final[dict[str, str]] = _JSON_LETTERS | dict.fromkeys([*"vaeN_LP\u2028\u2029", "\r\n"], "")
_DROPPED: Final = dict.fromkeys([*range(0x21), *map(ord, "-_\x7f")])
_DROPPED_BEYOND = re.compile("[\x00-\x20\x7f\x85\xa0\xad\u200b-\u200f\u2028\u2029\u2060-\u2064\ufeff_-]++")
_SURE_WORDS = re.compile(
    rf"jsonrpc|(?:{'|'.join(re.escape(method.casefold()) for method in sorted(SURELY_MCP))})(?![a-z])"
)
_SLASHED: Final = frozenset(plain(method) for method in a2a.SLASHED)
_WORDS = re.compile(
    rf"jsonrpc|(?:{'|'.join(re.escape(prefix) for prefix in METHOD_PREFIXES)})[a-z]"
    rf"|{'|'.join(re.escape(method.casefold()) for method in sorted(a2a.SLASHED))}"
)


def views(text: str) -> Iterator[str]:
    """Return what parsers may make of the inside of a string: as it is, and with escapes decoded in two ways."""
    yield text
    if "\\" in text:
        yield _JSON_ESCAPE.sub(_json_character, text)
        yield _WIDE_ESCAPE.sub(_wide_character, text)


def _json_character(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _JSON_LETTERS.get(found[2], str(found[2]))


def _wide_character(found: re.Match[str]) -> str:
    code: str | None = next((group for group in found.groups()[:4] if group), None)
    if code is not None:
        return chr(min(int(code, 16), 0x10FFFF))
    if found[5]:
        return chr(int(str(found[5]), 8))
    return _WIDE_LETTERS.get(found[6], str(found[6]))


def key_names(key: str, *, raw: bool = False) -> set[str]:
    """Return every name that some parser takes `key` for; `raw` where its escapes are not decoded yet."""
    if len(key) > MAX_WORD:
        return set()
    texts = list(views(key)) if raw else [key]
    # cJSON ends a key at NUL, others drop it.
    texts += [text.replace("\0", "") for text in texts if "\0" in text]
    return {fold_key(text) for text in texts}


def is_call_method(text: str, *, raw: bool = False) -> bool:
    """Return whether some server takes `text` for a method that only MCP has."""
    return any(method.startswith(METHOD_PREFIXES) or method in _SLASHED for method in _methods(text, raw=raw))


def is_plain_method(text: str, *, raw: bool = False) -> bool:
    """Return whether some server takes `text` for a method that other protocols may have, too."""
    # Names of A2A's count as they are written: other services have a `sendMessage`, too.
    views_of = views(text) if raw else (text,)
    return any(method in PLAIN_METHODS for method in _methods(text, raw=raw)) or any(v in a2a.NAMED for v in views_of)


def _methods(text: str, *, raw: bool) -> Iterator[str]:
    if len(text) <= MAX_WORD:
        for view in views(text) if raw else (text,):
            yield plain(view)


def has_call_words(text: str) -> bool:
    """Return whether `text` holds a word of MCP's in any spelling that a parser undoes."""
    return any(_WORDS.search(_loosened(view)) for view in views(text))


def has_message_words(text: str) -> bool:
    """Return whether `text` holds a word that is in every message, for texts that are too long to be read."""
    return any(_SURE_WORDS.search(_loosened(view)) for view in views(text))


def _loosened(text: str) -> str:
    if text.isascii():
        return text.lower().translate(_DROPPED)
    # Not the whole text: NFKC takes seconds for megabytes of what is no text.
    text = _ascii_forms().sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    return _DROPPED_BEYOND.sub("", text.casefold())


@functools.cache
def _ascii_forms() -> re.Pattern[str]:
    """Return a pattern of what NFKC makes ASCII of; beyond the first plane, of the blocks that it is in."""
    codes = (*range(0x80, 0xD800), *range(0xE000, 0x10000))
    forms = (chr(code) for code in codes if unicodedata.normalize("NFKC", chr(code)).isascii())
    return re.compile(f"[{''.join(map(re.escape, forms))}\U0001d400-\U0001d7ff\U0001f100-\U0001fbff]")
