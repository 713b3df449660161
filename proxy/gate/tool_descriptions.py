"""What should not stand in a tool's description: characters nobody sees, and phrases that speak to the model.

Pure, no I/O. Hidden characters are a finding to act on. Phrases are a hint and no
more: they catch next to nothing of what real attacks say.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.regex import compile_search
from proxy.policy.text import INVISIBLE_CLASS, fold

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PLACES: Final = 20
_CONTROLS: Final = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
_SUSPECT: Final = re.compile(f"[{_CONTROLS}{INVISIBLE_CLASS}]")
_JOINERS: Final = "\u200c\u200d"
_EMOJI_SELECTORS: Final = "\ufe0e\ufe0f"

PHRASES: Final = {
    "ignore-instructions": r"\b(ignore|disregard|forget|override)\b.{0,40}\b(previous|prior|above|earlier|other)\b"
    r".{0,40}\b(instructions?|prompts?|rules?|messages?)\b",
    "keep-from-user": r"\b(do not|don't|never|without)\b.{0,30}\b(tell|telling|inform|informing|mention|notify|"
    r"notifying|show)\b.{0,30}\buser\b",
    "secrecy": r"\b(keep|this is)\b.{0,30}\b(secret|hidden)\b.{0,30}\bfrom\b.{0,20}\b(user|human|operator)\b",
    "call-first": r"\b(before|after|prior to)\b.{0,20}\b(using|calling|invoking)\b.{0,20}\b(any|other|another|every)\b"
    r".{0,20}\btools?\b",
    "fake-system": r"<\s*/?\s*(important|system|instructions?|secret|admin)\s*>|\[\s*(system|inst)\s*\]",
    "read-secrets": r"\b(read|send|include|pass|attach)\b.{0,60}(\.ssh/|id_rsa|\.env\b|\.aws/|mcp\.json|"
    r"\b(api keys?|passwords?|credentials|private keys?)\b)",
    "new-role": r"\byou (are now|must now|will now)\b|\bfrom now on,? you\b",
}
_SEARCHES: Final = {name: compile_search(f"(?is){pattern}") for name, pattern in PHRASES.items()}


def find_hidden(tool: Any) -> tuple[str, ...]:
    """Return where a tool's definition, keys too, holds characters that cannot be seen: places and code points."""
    # What ordinary writing needs does not count: emoji, and joiners inside words of scripts that have them.
    places: dict[str, None] = {}
    for path, text in strings(tool):
        for match in _SUSPECT.finditer(text):
            if not _is_ordinary(text, match.start()):
                shown = _SUSPECT.sub("\N{REPLACEMENT CHARACTER}", path)
                places[f"{shown}: U+{ord(match.group()):04X}"] = None
                if len(places) >= MAX_PLACES:
                    return tuple(places)
    return tuple(places)


def find_phrases(tool: Any) -> tuple[str, ...]:
    """Name the injection phrases in a tool's definition."""
    text = fold("\n".join(text for _, text in strings(tool)).encode("utf-8", "replace").decode())
    return tuple(name for name, found in _SEARCHES.items() if found(text))


def strings(value: Any) -> Iterator[tuple[str, str]]:
    """Return every string in `value` with its path, keys too, however deep it is nested."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, current = waiting.pop()
        if isinstance(current, str):
            yield path, current
        elif isinstance(current, dict):
            yield from ((path, key) for key in current if isinstance(key, str))
            waiting += [(_below(path, key), inner) for key, inner in current.items()]
        elif isinstance(current, list):
            waiting += [(f"{path}[]", inner) for inner in current]


def _below(path: str, key: str) -> str:
    # A path is for people; past so deep it only costs.
    return path if len(path) > 200 else f"{path}.{key[:60]}" if path else key[:60]


def _is_ordinary(text: str, at: int) -> bool:
    """Return whether the character at `at` has its place in ordinary writing."""
    before = text[at - 1] if at else ""
    after = text[at + 1] if at + 1 < len(text) else ""
    if text[at] in _EMOJI_SELECTORS:
        return _is_symbol(before) or before in tuple("0123456789#*")
    if text[at] in _JOINERS:
        emoji = _is_symbol(before.translate({0xFE0F: None})) or before == "\ufe0f"
        return (text[at] == "\u200d" and emoji and _is_symbol(after)) or (_joins(before) and _joins(after))
    return False


def _is_symbol(char: str) -> bool:
    return bool(char) and ord(char) > 0x7F and unicodedata.category(char) in ("So", "Sk", "Sm", "Po", "Pd")


def _joins(char: str) -> bool:
    """Return whether a letter or mark is of a script whose words have joiners in them."""
    return bool(char) and 0x0600 <= ord(char) <= 0x1CFF and unicodedata.category(char) in ("Lo", "Mn", "Mc")
