"""Finds every tool call that any sloppy reader could make of some bytes.

The reader tries all content codings, all character sets, all choices among duplicate
keys, keys in any case, values after garbage, and arrays in arrays, and gives every call
it finds under any of these readings. Pure: no I/O.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import brotli  # type: ignore[import-untyped]
import zstandard

LIMIT = 64 * 1024 * 1024
MAX_DEPTH = 150_000
CHARSETS = (
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-32-le",
    "utf-32-be",
    "utf-7",
)
DUPLICATE_CHOICES = 16


def _inflate(data: bytes, window: int) -> bytes:
    return zlib.decompressobj(window).decompress(data, LIMIT)


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=LIMIT)


_DECODERS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes], bytes]], ...] = (
    (lambda data: data[:2] == b"\x1f\x8b", lambda data: gzip.decompress(data)[:LIMIT]),
    (lambda data: data[:1] == b"\x78", lambda data: _inflate(data, 15)),
    (lambda data: data[:4] == b"\x28\xb5\x2f\xfd", _zstd),
    (lambda data: data[:1] not in b"{[ \r\n\t\xef\xfe\xff\x00+", lambda data: _inflate(data, -15)),
    (lambda data: data[:1] not in b"{[ \r\n\t\xef\xfe\xff\x00+", brotli.decompress),
)


def decompressed(data: bytes, depth: int = 3) -> Iterator[bytes]:
    """Give `data`, and whatever decompressing it up to `depth` times gives, whatever its label says."""
    yield data
    if not depth:
        return
    for looks_like, decode in _DECODERS:
        if looks_like(data):
            try:
                inner = decode(data)
            except (OSError, EOFError, zlib.error, zstandard.ZstdError, brotli.error):
                continue
            if inner and inner != data:
                yield from decompressed(inner, depth - 1)


def texts(data: bytes, charset: str | None = None) -> Iterator[str]:
    """Give every different text that `data` could stand for."""
    seen: set[str] = set()
    for name in (charset, *CHARSETS):
        for errors in ("surrogatepass", "replace"):
            try:
                text = data.decode(name or "utf-8", errors)
            except (UnicodeError, LookupError, ValueError):
                continue
            if text not in seen and "{" in text:
                seen.add(text)
                yield text


_BLANKS = " \t\r\n\ufeff\x00\x1e\x0b\x0c\x85\xa0\u2028\u2029"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


class Pairs(list[tuple[str, Any]]):
    """An object with every key kept, in order, duplicates too."""


def _scalar(token: str) -> Any:
    if token.startswith('"'):
        try:
            return json.loads(token, strict=False)
        except ValueError:
            return token[1:-1]
    try:
        return json.loads(token) if len(token) < 400 else token
    except ValueError:
        return token


def values(text: str) -> Iterator[Any]:
    """Give every top-level array or object in `text`, skipping whatever is between them.

    Iterative, so that no nesting is too deep; objects come as Pairs.
    """
    stack: list[Any] = []
    keys: list[str | None] = []
    key: str | None = None
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token in "{[":
            stack.append(Pairs() if token == "{" else [])
            keys.append(key)
            key = None
        elif token in "}]":
            if not stack:
                continue
            done, key = stack.pop(), keys.pop()
            if not stack:
                yield done
            else:
                _add(stack[-1], key, done)
            key = None
        elif token in ",:":
            continue
        elif stack:
            key = _take(stack[-1], key, _scalar(token))


def _take(container: Any, key: str | None, value: Any) -> str | None:
    """Use a scalar as the next key where one is due, else as a value; give the key that waits."""
    if isinstance(container, Pairs) and key is None:
        return str(value)
    _add(container, key, value)
    return None


def _add(container: Any, key: str | None, value: Any) -> None:
    if isinstance(container, Pairs):
        container.append((key or "", value))
    else:
        container.append(value)


def fold(key: str) -> str:
    """Fold a key as the laxest reader would: case, compatibility forms, blanks, NULs."""
    folded = unicodedata.normalize("NFKC", key).casefold()
    return "".join(char for char in folded if char not in _BLANKS and char != "\u200b")


def _choices(pairs: Pairs, wanted: str) -> list[Any]:
    found = [value for key, value in pairs if fold(key) == wanted]
    return found[:DUPLICATE_CHOICES]


def messages(value: Any) -> Iterator[Pairs]:
    """Give every object that stands where a message may stand: at the top, or in arrays there."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, Pairs):
            yield current
        elif isinstance(current, list):
            waiting.extend(reversed(current))


def calls_in(message: Pairs) -> Iterator[tuple[str, Any]]:
    """Give every tool call that `message` is under some choice among its duplicate keys."""
    methods = [method for method in _choices(message, "method") if isinstance(method, str)]
    if not any(fold(method) == "tools/call" for method in methods):
        return
    for params in _choices(message, "params"):
        yield from _calls_in_params(params)


def _calls_in_params(params: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(params, str):
        params = next(values(params), params)
    if isinstance(params, Pairs):
        for name, arguments in itertools.product(
            _choices(params, "name"), _choices(params, "arguments") or [None]
        ):
            yield _name(name), plain(arguments)
    elif isinstance(params, list) and params:
        yield _name(params[0]), plain(params[1]) if len(params) > 1 else None


def _name(name: Any) -> str:
    while isinstance(name, list) and name and not isinstance(name, Pairs):
        name = name[0]
    return fold(name) if isinstance(name, str) else repr(name)


def plain(value: Any, depth: int = 6) -> Any:
    """Give `value` with objects as dicts (last key wins), cut off below `depth`."""
    if not depth:
        return "…"
    if isinstance(value, str) and value.lstrip(_BLANKS).startswith("{"):
        value = next(values(value), value)
    if isinstance(value, Pairs):
        return {fold(key): plain(inner, depth - 1) for key, inner in value}
    if isinstance(value, list):
        return [plain(inner, depth - 1) for inner in value[:100]]
    return value


def find_calls(body: bytes, charset: str | None = None) -> list[tuple[str, Any]]:
    """Give every distinct tool call in `body` under any reading."""
    found: dict[str, tuple[str, Any]] = {}
    for data in decompressed(body):
        for text in texts(data, charset):
            for value in values(text):
                for message in messages(value):
                    for call in calls_in(message):
                        found.setdefault(json.dumps(call, default=repr), call)
    return list(found.values())


def first_id(body: bytes) -> Any:
    """Give the id of the first message in `body` for the answer; None where there is none."""
    for data in decompressed(body):
        for text in texts(data):
            for value in values(text):
                for message in messages(value):
                    if ids := _choices(message, "id"):
                        return plain(ids[-1])
    return None
