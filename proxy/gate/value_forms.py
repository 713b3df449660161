"""The forms in which a server may send a value back: as it came, or escaped and encoded as texts usually are. Pure.

Each character of a value may stand as itself, percent-encoded, escaped as in JSON or HTML, and the whole in Base64 or
hex. One expression per value finds all of them, and another what may be the beginning of one at the end of a text.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import re
from html.entities import html5
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_from_bytes

import re2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LONGEST: Final = 1 << 10
"""Bytes of a value up to which its characters are found in every spelling. A longer one is found in its usual forms."""
NESTED: Final = 100
"""Characters of a form up to which its beginning is told exactly; a longer beginning counts as one."""
# What may stand between two characters: the zero bytes of UTF-16 and UTF-32, and where lines are folded.
_GAP: Final = r"(?:\x00{1,3}|=?\r?\n[ \t]?|\\{1,4}r\\{1,4}n|\\{1,4}n|%0D%0A|%0A)?"
_PERCENT: Final = r"(?:%(?:25){0,3}|=)"  # also as in quoted-printable
_HEX: Final = "[0-9A-Fa-f]"
# What an escape or a gap may be cut down to: a percent sign and a digit, a backslash, the start of an entity.
_CUT: Final = (
    rf"(?:{_PERCENT}{_HEX}?|\\{{1,8}}(?:u(?:{_HEX}{{0,3}}|\{{{_HEX}{{0,6}})|x{_HEX}?|[0-7]{{1,2}}|r\\{{0,4}})?"
    r"|\\{0,8}&(?:a?|amp?|(?:amp;){0,3}[#a-z]?[#a-zA-Z0-9]{0,8})"
    r"|'(?:\\{1,8}'?|\\{0,8}\"(?:'\\{0,8}\"?)?)|=\r?|\r|[\xc2-\xf4][\x80-\xbf]{0,2})"
)
# The same for a character of several bytes or units.
_CUT_WIDE: Final = (
    rf"(?:(?:{_PERCENT}{_HEX}{{2}}){{1,3}}(?:{_PERCENT}{_HEX}?)?"
    rf"|(?:\\{{1,8}}(?:x{_HEX}{{2}}|[0-7]{{3}})){{1,3}}(?:\\{{1,8}}(?:x{_HEX}?|[0-7]{{0,2}}))?"
    rf"|\\{{1,8}}u{_HEX}{{4}}(?:\\{{1,8}}(?:u{_HEX}{{0,3}})?)?|" + _CUT[3:]
)
_MOST_NAMED: Final = 8
"""Letters of the name of an entity; a longer one has a shorter that is used."""
# How CSV, SQL and YAML write a quote, and a shell: closed, escaped and opened again.
_QUOTES: Final = {
    '"': r"\x22{1,2}",
    "'": r"'(?:'|\\{1,8}''|\\{0,8}\x22'\\{0,8}\x22')?",
    " ": r"(?:\x20|\+|%(?:25){0,3}2[bB])",  # a form's blank
}
_WIDE: Final = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_SLASHED: Final = "\"'\\/"
_SURE: Final = 32
"""Bytes of the beginning of a long form that are in no other text by chance."""
_BROADEST: Final = 24
"""Bytes that one character and the gap after it take at most."""


def forms(value: bytes) -> list[str]:
    """Return each form of a value as a text of its characters; the spelling of each is another matter."""
    texts = [_text(value)]
    for offset in range(3):
        padded = bytes(offset) + value
        encoded = (base64.b64encode(padded), base64.urlsafe_b64encode(padded))
        texts += [_inside(each.decode(), offset, len(value)) for each in encoded]
    return list(dict.fromkeys(texts))


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _inside(encoded: str, offset: int, length: int) -> str:
    """Return the characters of Base64 that stand for bytes of the value alone."""
    start = -(-offset * 8 // 6)
    end = (offset + length) * 8 // 6
    return encoded[start:end]


def hex_form(value: bytes) -> str:
    """Return the expression of a value in hex, with what often stands between two bytes."""
    return "[ :-]?".join("".join(_either_case(digit) for digit in f"{byte:02x}") for byte in value)


def _either_case(char: str) -> str:
    return f"[{char}{char.upper()}]" if char.isalpha() else char


def spelt(char: str, *, first: bool = False) -> str:
    """Return the expression of every spelling of one character, over bytes."""
    # Inside a string of JSON that is itself inside one, a quote has several backslashes before it.
    slashes = r"\\{0,8}" if char in _SLASHED or not first else ""
    plain = _QUOTES.get(char) or "".join(map(_byte, char.encode()))
    return f"(?:{slashes}(?:{'|'.join([plain, *_entities(char)])})|{'|'.join(_escapes(char))})"


def _entities(char: str) -> Iterator[str]:
    """Return a character's spellings in HTML and XML."""
    code = ord(char)
    yield f"&(?:amp;){{0,3}}#(?:0{{0,4}}{code}|[xX]0{{0,4}}{_digits(f'{code:x}')});?"
    if names := _names().get(char):
        yield f"&(?:amp;){{0,3}}(?:{'|'.join(names)});?"


@functools.cache
def _names() -> dict[str, list[str]]:
    """Return the names that HTML has for characters."""
    found: dict[str, list[str]] = {}
    for name, text in html5.items():
        if name.endswith(";") and len(name) <= _MOST_NAMED + 1:
            found.setdefault(text, []).append(name[:-1])
    return found


def _escapes(char: str) -> Iterator[str]:
    """Return a character's spellings with a backslash or a percent sign."""
    code, data, units = ord(char), char.encode(), char.encode("utf-16-be")
    yield "".join(rf"\\{{1,8}}u{_digits(units[i : i + 2].hex())}" for i in range(0, len(units), 2))
    yield rf"\\{{1,8}}u\{{0{{0,4}}{_digits(f'{code:x}')}\}}"
    yield "".join(rf"\\{{1,8}}(?:x{_digits(f'{byte:02x}')}|{byte:03o})" for byte in data)
    yield "".join(_PERCENT + _digits(f"{byte:02x}") for byte in data)
    if 128 <= code < 256:
        yield f"{_byte(code)}|{_PERCENT}{_digits(f'{code:02x}')}"  # of Latin-1
        yield rf"\\{{1,8}}x{_digits(f'{code:02x}')}"


def _byte(code: int) -> str:
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{code:02x}"


def _digits(text: str) -> str:
    return "".join(map(_either_case, text))


def _characters(form: str, *, in_base64: bool) -> list[str]:
    if in_base64:
        return [char if char.isalnum() else spelt(char, first=not i) for i, char in enumerate(form)]
    return [spelt(char, first=not i) for i, char in enumerate(form)]


class ValueForms:
    """What finds one value in bytes."""

    def __init__(self, value: bytes) -> None:
        texts = forms(value)
        self._exact: list[bytes] = []
        if len(value) > LONGEST:
            self._exact = _usual(texts, value)
            self._find = compiled("|".join(re.escape(each).decode("latin-1") for each in self._exact))
            self.reach = max(map(len, self._exact))
            return
        characters = [_characters(text, in_base64=i > 0) for i, text in enumerate(texts)]
        wide = [] if texts[0].isascii() else [_wide(texts[0], coding) for coding in _WIDE]
        exact = [hex_form(value), *map("".join, wide)]
        self._find = compiled("|".join([*(_GAP.join(each) for each in characters), *exact]))
        cut = _CUT if texts[0].isascii() else _CUT_WIDE
        begins = [_beginning(each, cut=cut) for each in [*characters, _hex_characters(value), *wide]]
        self._begins = compiled(f"(?:{'|'.join(begins)})\\z")
        self.reach = max(map(len, texts)) * _BROADEST
        """Bytes that the longest form may take."""

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Return where the value stands."""
        at = 0
        while (span := self._find(data, at, len(data)))[0] >= 0:
            yield span
            at = span[1]

    def beginning(self, data: bytes) -> int:
        """Return from where on the end of `data` may be the beginning of a form; its length where it is none."""
        start = max(0, len(data) - self.reach)
        if self._exact:
            return min(_cut_off(data, start, each) for each in self._exact)
        found = self._begins(data, start, len(data))[0]
        return int(found) if found >= 0 else len(data)


def _usual(texts: Sequence[str], value: bytes) -> list[bytes]:
    """Return the usual spellings of a long value."""
    plain = [text.encode() for text in texts]
    plain += [value, value.hex().encode(), value.hex().upper().encode()]
    plain += [quote_from_bytes(value, safe=safe).encode() for safe in ("", "/")]
    for ascii_only in (True, False):
        inside = texts[0]
        for _ in range(3):  # the text of a result is often JSON itself
            inside = json.dumps(inside, ensure_ascii=ascii_only)[1:-1]
            plain += [each.encode() for each in (inside, inside.replace("/", "\\/"), html.escape(inside))]
    plain += [html.escape(texts[0]).encode(), html.escape(texts[0], quote=False).encode()]
    return sorted(dict.fromkeys(plain), key=len, reverse=True)


def _cut_off(data: bytes, start: int, form: bytes) -> int:
    """Return from where on the end of `data` is the beginning of a text; its length where it is none."""
    at = data.find(form[:_SURE], start)  # of one byte alone, a text may be full
    while at >= 0:
        if form.startswith(data[at:]):
            return at
        at = data.find(form[:_SURE], at + 1)
    ends = range(max(start, len(data) - _SURE + 1), len(data))
    return next((at for at in ends if form.startswith(data[at:])), len(data))


def _hex_characters(value: bytes) -> list[str]:
    return [_either_case(digit) + ("[ :-]?" if i % 2 else "") for i, digit in enumerate(value.hex())]


def _beginning(characters: Sequence[str], *, cut: str = _CUT) -> str:
    """Return the expression of every beginning of a form that is not the whole of it."""
    deep = len(characters) > NESTED
    nested = "(?s:.*)" if deep else cut
    for character in reversed(characters[: NESTED if deep else -1]):
        nested = f"(?:{cut}|{character}{_GAP}(?:{nested})?)"
    return nested


def _wide(text: str, coding: str) -> list[str]:
    """Return the expressions of the bytes of a text in one of the encodings with zero bytes."""
    return [f"\\x{byte:02x}" for byte in text.encode(coding)]


def compiled(expression: str) -> Any:
    """Return what finds the first span of an expression in bytes, between two offsets."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 16 << 20
    found = re2.compile(expression.encode("latin-1"), options)._regexp  # noqa: SLF001
    search = functools.partial(found.Match, found.Anchor.UNANCHORED)
    return lambda data, start, end: search(data, start, end)[0]
