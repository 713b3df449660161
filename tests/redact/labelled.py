"""The labelled set: texts put together from their templates, the same on every run."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import re2
from ruamel.yaml import YAML

FOLDER = Path(__file__).parents[1] / "cases" / "secrets"

_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_UPPER = _LOWER.upper()
_B58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_ALPHABETS = {
    "alnum": _DIGITS + _LOWER + _UPPER,
    "mixed": _DIGITS + _LOWER + _UPPER,
    "b64": _DIGITS + _LOWER + _UPPER,
    "upper": _UPPER + _DIGITS,
    "lower": _LOWER + _DIGITS,
    "hex": _DIGITS + "abcdef",
    "b32": _UPPER + "234567",
    "b58": _B58,
    "digit": _DIGITS,
    "letters": _LOWER + _UPPER,
}
_HOLE = re2.compile(r"\{([a-z0-9]+)(?::(\d+))?\}")


@dataclass(frozen=True)
class Sample:
    detector: str
    text: str
    positive: bool
    is_json: bool

    @property
    def value(self) -> Any:
        return json.loads(self.text) if self.is_json else self.text


@functools.cache
def load() -> tuple[Sample, ...]:
    """Return every sample of every file."""
    samples = []
    for file in sorted(FOLDER.glob("*.yaml")):
        for entry in YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8")):
            is_json = entry.get("json", False)
            for positive, label in ((True, "positive"), (False, "negative")):
                samples += (
                    Sample(entry["detector"], expand(text, f"{entry['detector']}{number}"), positive, is_json)
                    for number, text in enumerate(entry[label])
                )
    return tuple(samples)


def expand(template: str, seed: str) -> str:
    """Fill the holes of a template."""
    source = random.Random(seed)

    def fill(match: Any) -> str:
        return _fill(match[1], match[2], source) or match[0]

    return _HOLE.sub(fill, template)


def _fill(name: str, size: str | None, source: random.Random) -> str | None:
    if size is not None:
        return _draw(name, int(size), source) if name in _ALPHABETS else None
    if name == "uuid":
        parts = [_draw("hex", length, source) for length in (8, 4, 3, 3, 12)]
        return f"{parts[0]}-{parts[1]}-4{parts[2]}-a{parts[3]}-{parts[4]}"
    if name == "basic":
        return base64.b64encode(b"bob:" + _draw("alnum", 9, source).encode()).decode()
    if name == "wif":
        return _wif(source)
    return "RSA " if name == "rsa" else None


def _draw(alphabet: str, size: int, source: random.Random) -> str:
    drawn = [source.choice(_ALPHABETS[alphabet]) for _ in range(size)]
    if alphabet == "mixed":
        for position, kind in enumerate((_UPPER, _LOWER, _DIGITS)):
            drawn[position] = source.choice(kind)
    return "".join(drawn)


def _wif(source: random.Random) -> str:
    raw = b"\x80" + source.randbytes(32) + b"\x01"
    raw += hashlib.sha256(hashlib.sha256(raw).digest()).digest()[:4]
    number, text = int.from_bytes(raw, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = _B58[digit] + text
    return text
