"""Whether a host's name carries data out: the DNS query for it reaches whoever runs the domain. Pure, no I/O."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

from proxy.policy.data_shapes import hidden_text, is_random
from proxy.policy.ip_address import parse_address

# Below these, the label before is the owner's: a country's second level, and services that sell names under their own.
_SECOND_LEVELS: Final = frozenset(("ac", "co", "com", "edu", "gob", "gov", "gouv", "ltd", "mil", "ne", "net", "nom"))
_MORE_LEVELS: Final = frozenset(("or", "org", "plc", "sch"))
_HEX: Final = re.compile(r"[0-9a-f]{4,}")
_SHORTEST_TEXT: Final = 5  # characters that a label decodes to
_SHORTEST_HEX: Final = 20
_SHORTEST_RANDOM: Final = 16
_CHUNKS: Final = 4  # labels of one length in a row
_SHORTEST_CHUNK: Final = 4
_DIGITS: Final = 13


def site_of(host: str) -> str:
    """Return the part of a host's name that one owner registered, by the form of the name; an address as it is."""
    name = host.rstrip(".").lower()
    if parse_address(name) is not None:
        return name
    labels = name.split(".")
    if len(labels) <= 2:
        return name
    nested = len(labels[-1]) == 2 and labels[-2] in _SECOND_LEVELS | _MORE_LEVELS
    return ".".join(labels[-3 if nested else -2 :])


def carries_data(host: str) -> bool:
    """Return whether labels before the owner's part of a name are data: encoded, random, or cut to one length."""
    name = host.rstrip(".")
    if parse_address(name) is not None or ":" in name:
        return False
    inner = name[: max(0, len(name) - len(site_of(name)) - 1)]
    labels = [label for label in inner.split(".") if label and not label.lower().startswith("xn--")]
    if not labels:
        return False
    return any(map(_is_data, labels)) or _is_cut(labels)


def _is_data(label: str) -> bool:
    if hidden_text(label, _SHORTEST_TEXT) is not None and _is_odd_word(label):
        return True
    digits = label.replace("-", "").replace("_", "")
    if digits.isdigit() and len(digits) >= _DIGITS:
        return True
    if len(label) >= _SHORTEST_HEX and _HEX.fullmatch(label.lower()) and _has_both(label):
        return True
    return any(is_random(piece, _SHORTEST_RANDOM) for piece in re.split(r"[-]", label))


def _is_odd_word(label: str) -> bool:
    # Lower-case words decode as base64 to something now and then, and never to text by having a digit in them.
    return _has_both(label) or not label.islower()


def _has_both(label: str) -> bool:
    return any(c.isdigit() for c in label) and any(c.isalpha() for c in label)


def _is_cut(labels: list[str]) -> bool:
    """Return whether several labels in a row are pieces of one text: of one length, or digits of one number."""
    for size, group in groupby(labels, key=len):
        if size >= _SHORTEST_CHUNK and len(list(group)) >= _CHUNKS:
            return True
    hexes = "".join(label for label in labels if _HEX.fullmatch(label.lower()) and len(label) % 2 == 0)
    return len(hexes) >= _SHORTEST_TEXT * 2 and hidden_text(hexes, _SHORTEST_TEXT) is not None
