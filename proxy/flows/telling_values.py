"""Single values that are telling by themselves: mails, links, numbers, ids, keys, and names. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.flows.fingerprint import normalise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

KINDS: Final = ("emails", "urls", "numbers", "ids", "names")
DEFAULT_KINDS: Final = frozenset(KINDS) - {"names"}
MAX_VALUES: Final = 4096
_SHORT: Final = 8
_LONGEST_WORD: Final = 4096
_SHORTEST_URL: Final = 14  # the names of well-known sites are shorter, and stand in every other text
# Each begins with a set of characters, and looks behind only then: Python's engine skips to such a set much faster than
# it tries a look behind at every character.
_EMAIL: Final = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_URL: Final = re.compile(r"[hHwW](?:(?<=[hH])(?i:ttps?://)|(?<=[wW])(?i:ww\.))[^\s<>\"'\\^`{|}]{4,2000}")
_URL_START: Final = re.compile(r"^(?:https?://)?(?:www\.)?", re.IGNORECASE)
_URL_END: Final = ".,;:!?)]'\""
# What looks like a date or a time is no number to follow: honest calls are full of them.
_DATE: Final = re.compile(
    r"\d(?<!\d\d)(?:\d{3}[-/.]\d{1,2}[-/.]\d{1,2}|\d?[-/.]\d{1,2}[-/.]\d{4})"
    r"(?:[T ]\d{1,2}:\d{2}(?::\d{2})?(?:\.\d{1,9})?)?"
)
# Six digits by themselves, as codes are sent; more with the separators that people and banks put in.
_NUMBER: Final = re.compile(r"\d(?<![\w.]\d)(?:(?:[ -]?\d){6,39}|\d{5})(?!\w|\.\d)")
_TOKEN: Final = re.compile(r"[A-Za-z0-9](?:[\w-]{0,253}[A-Za-z0-9])?")
_IBAN: Final = re.compile(r"[A-Z](?<!\w[A-Z])[A-Z]\d{2}(?: ?[A-Z0-9]{2,4}){3,8}\b")
_CAPITAL: Final = "[A-Z\u00c0-\u00de]"
_NAME: Final = re.compile(rf"{_CAPITAL}(?<!\w{_CAPITAL})[^\W\d_]+(?: {_CAPITAL}[^\W\d_]+){{1,3}}")
_DIGIT: Final = re.compile(r"\d")
_DIGITS: Final = re.compile(r"\d+")
_AROUND: Final = 40
# In what goes out, digits count wherever they stand, with anything between them.
_CODE: Final = re.compile(r"\d(?<!\d\d)(?:[ ._,-]?\d){5,6}(?![ ._,-]?\d)")


def values_in(text: str, kinds: Collection[str] = DEFAULT_KINDS) -> set[tuple[int, bytes]]:
    """Return the values of these kinds in a text, normalised, with the numbers of their kinds; bounded."""
    found: set[tuple[int, bytes]] = set()
    for kind, value in _values(text, kinds):
        if len(plain := normalise(value)) >= (_SHORTEST_URL if kind == "urls" else 6):
            found.add((KINDS.index(kind), plain))
            if len(found) >= MAX_VALUES:
                break
    return found


def short_words(text: str) -> set[bytes]:
    """Return the words of what goes out that may be a value too short to be looked for inside of words."""
    found: set[bytes] = set()
    if _DIGIT.search(text):
        found = {re.sub(rb"\D", b"", code.encode()) for code in _CODE.findall(_DATE.sub(" ", text))}
    if "@" in text:
        found |= {plain for mail in _mails(text) if len(plain := normalise(mail)) < _SHORT}
    return found


def _values(text: str, kinds: Collection[str]) -> Iterator[tuple[str, str]]:
    if "emails" in kinds and "@" in text:
        yield from (("emails", match) for match in _mails(text))
    if "urls" in kinds and ("://" in text or "www." in text.lower()):
        yield from (("urls", _URL_START.sub("", match.rstrip(_URL_END))) for match in _URL.findall(text))
    if _DIGIT.search(text):
        undated = _DATE.sub(" ", _around_digits(text))
        if "numbers" in kinds:
            yield from (("numbers", match) for match in _NUMBER.findall(undated))
        if "ids" in kinds:
            words = (word for word in undated.split() if not word.isalpha())
            tokens = (token for word in words for token in _TOKEN.findall(word))
            yield from (("ids", token) for token in tokens if _is_id(token))
            yield from (("ids", match) for match in _IBAN.findall(undated))
    if "names" in kinds:
        yield from (("names", match) for match in _NAME.findall(text))


def _mails(text: str) -> Iterator[str]:
    # Word by word: searched for in a whole text, every letter of it might begin one.
    return (match for word in text.split() if "@" in word for match in _EMAIL.findall(word[:_LONGEST_WORD]))


def _around_digits(text: str) -> str:
    """Return the parts of a text that hold digits: most of a text holds none, and need not be searched for numbers."""
    parts, low, high = list[str](), 0, 0
    for match in _DIGITS.finditer(text):
        start, end = match.span()
        if start - _AROUND > high:
            parts.append(text[low:high])
            low = start - _AROUND
        high = end + _AROUND
    return "\n".join([*parts, text[low:high]])


def _is_id(token: str) -> bool:
    """Return whether a word is an id or a key: letters and digits mixed, and too long to be a measure."""
    if len(token) < _SHORT or token.isalpha():
        return False
    digits, letters = sum(map(str.isdigit, token)), sum(map(str.isalpha, token))
    return digits >= 2 and letters >= 2 and digits + letters >= _SHORT
