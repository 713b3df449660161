"""The texts in a JSON value, and what they read as once encodings are undone. Pure; bounded."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.redact.decode import MAX_DEPTH, Layer, RootLayer, next_layer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import Json

MAX_TEXT: Final = 1 << 20  # characters of one value that are read
MAX_INFLATED: Final = 1 << 20
_MAX_WORDS: Final = 512
_MAX_NESTED: Final = 4
_WORD: Final = re.compile(r"[A-Za-z0-9+/_-]{8,64}={0,2}")
_PACKED: Final = re.compile(rb"\x1f\x8b\x08|\x78[\x01\x5e\x9c\xda]")
_TAG: Final = re.compile(r"<[^<>]{0,4096}>")
_PROSE_WORDS: Final = 4


class Text(NamedTuple):
    """A string, and the name that it stands under."""

    name: str
    text: str


class Reading(NamedTuple):
    """The texts of a value, and whether they are all that it holds."""

    texts: list[Text]
    complete: bool

    @property
    def whole(self) -> str:
        """Return all texts, each on a line."""
        return "\n".join([text for _, text in self.texts])


def read_value(value: Json, *, prose: bool = False, names: bool = False) -> Reading:
    """Return the strings and numbers of a value, in its order; with `prose`, only running text.

    A string that holds JSON is read as what it holds. `names` are the keys of objects: what goes out may be in them.
    """
    texts: list[Text] = []
    left = MAX_TEXT
    for name, text in _leaves(value, names=names):
        if prose and not is_prose(text):
            continue
        texts.append(Text(name, text[:left]))
        left -= len(text)
        if left <= 0:
            return Reading(texts, complete=False)
    return Reading(texts, complete=True)


def is_prose(text: str) -> bool:
    """Return whether a string is words that somebody wrote, not one datum: an address or a name in a field."""
    return len(text.split(None, _PROSE_WORDS)) >= _PROSE_WORDS


def _leaves(value: Json, *, names: bool) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    while stack:
        name, item, depth = stack.pop()
        if isinstance(item, str):
            inner = _nested(item) if depth < _MAX_NESTED else None
            if inner is None:
                yield name, item
            else:
                stack.append((name, inner, depth + 1))
        elif isinstance(item, dict):
            stack.extend((key, item[key], depth) for key in reversed(item))
            if names:
                yield from (("", key) for key in item)
        elif isinstance(item, list):
            stack.extend((name, child, depth) for child in reversed(item))
        elif item is not None and not isinstance(item, bool):
            yield name, repr(item)


def _nested(text: str) -> Any:
    """Return what a string holds as JSON, an object or an array; None where it holds none."""
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def decoded(text: str) -> Iterator[str]:
    """Yield what a text reads as where encodings in it are undone, up to three deep."""
    data = text.encode("utf-8", "ignore")
    layer: Layer | None = RootLayer(data)
    for _ in range(MAX_DEPTH):
        assert layer is not None
        layer = next_layer(layer, layer.data[:MAX_TEXT])
        if layer is None:
            break
        plain = layer.data.decode("utf-8", "ignore")
        yield plain
        yield from _unescaped(plain)
        yield from _inflated(layer.data)
    yield from _short_words(text)
    yield from _unescaped(text)
    if "<" in text and (bare := _TAG.sub("", text)) != text:
        yield html.unescape(bare)


def _unescaped(text: str) -> Iterator[str]:
    """Yield a text without its HTML entities, where it has any."""
    if "&" in text and (plain := html.unescape(text)) != text:
        yield plain


def _inflated(data: bytes) -> Iterator[str]:
    """Yield what compressed parts of decoded data hold."""
    for match in list(_PACKED.finditer(data))[:4]:
        engine = zlib.decompressobj(47)  # either gzip or zlib
        try:
            yield engine.decompress(data[match.start() :], MAX_INFLATED).decode("utf-8", "ignore")
        except zlib.error:
            continue


def _short_words(text: str) -> Iterator[str]:
    """Yield what single words decode to that are too short for the decoder of long ones: an encoded code or id."""
    for _ in range(MAX_DEPTH):
        # A plain word is nothing encoded: that has digits, or capitals inside of it.
        words = [word for word in _WORD.findall(text) if not (word.isalpha() and word[1:].islower())][:_MAX_WORDS]
        text = "\n".join(plain for word in words for plain in (_base64(word), _hex(word), _base32(word)) if plain)
        if not text:
            return
        yield text


def _base64(word: str) -> str:
    bare = word.rstrip("=")
    if len(bare) % 4 == 1:
        return ""
    plain = base64.b64decode(bare.replace("-", "+").replace("_", "/") + "==", validate=False)
    return _printable(plain)


def _hex(word: str) -> str:
    try:
        return _printable(binascii.unhexlify(word))
    except (binascii.Error, ValueError):
        return ""


def _base32(word: str) -> str:
    bare = word.rstrip("=").upper()
    try:
        return _printable(base64.b32decode(bare + "=" * (-len(bare) % 8)))
    except (binascii.Error, ValueError):
        return ""


def _printable(plain: bytes) -> str:
    text = plain.decode("ascii", "replace")
    return text if text.isprintable() and text.isascii() else ""
