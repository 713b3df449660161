"""Finds every tool call that any sloppy reader could make of some bytes.

The reader tries all content codings, all character sets, all choices among duplicate
keys, keys in any case, values after other values, and arrays in arrays, and gives every call
it finds under any of these readings. Pure: no I/O.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import brotli
import zstandard

LIMIT = 4 * 1024 * 1024
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
SHORT = 10_000
"""Characters up to which a text is also read by its lines and as YAML."""


def _inflate(data: bytes, window: int) -> bytes:
    return zlib.decompressobj(window).decompress(data, LIMIT)


def _gunzip(data: bytes) -> bytes:
    """Decompress every member, up to LIMIT bytes, and ignore what follows them."""
    text = b""
    while data[:2] == b"\x1f\x8b" and len(text) < LIMIT:
        member = zlib.decompressobj(31)
        text += member.decompress(data, LIMIT)
        data = member.unused_data
    return text


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)[:LIMIT]


_DECODERS: tuple[tuple[Callable[[bytes], bool], Callable[[bytes], bytes]], ...] = (
    (lambda data: data[:2] == b"\x1f\x8b", _gunzip),
    (lambda data: data[:1] == b"\x78", lambda data: _inflate(data, 15)),
    (lambda data: data[:4] == b"\x28\xb5\x2f\xfd", _zstd),
    (lambda data: data[:1] not in b"{[ \r\n\t\xef\xfe\xff\x00+", lambda data: _inflate(data, -15)),
    (lambda data: data[:1] not in b"{[ \r\n\t\xef\xfe\xff\x00+", brotli.decompress),
)


def decompressed(data: bytes, depth: int = 3) -> Iterator[bytes]:
    """Return `data`, and whatever decompressing it up to `depth` times gives, whatever its label says."""
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


def _plausible(data: bytes) -> tuple[str, ...]:
    """Return the character sets in which `data` can hold JSON at all."""
    wide = tuple(name for name in CHARSETS if "16" in name or "32" in name) if b"\x00" in data else ()
    return ("utf-8", "utf-8-sig", *wide)


def texts(data: bytes, charset: str | None = None) -> Iterator[str]:
    """Return every different text that `data` could stand for."""
    seen: set[str] = set()
    shortened = _OVERLONG.sub(lambda match: bytes([(match[0][0] & 1) << 6 | match[0][1] & 0x3F]), data)
    for name in (charset, *_plausible(data)):
        for errors in ("surrogatepass", "replace"):
            try:
                text = (shortened if errors == "replace" else data).decode(name or "utf-8", errors)
            except (UnicodeError, LookupError, ValueError):
                continue
            if text not in seen and ("{" in text or "[" in text or (":" in text and len(text) < SHORT)):
                seen.add(text)
                yield text


_OVERLONG = re.compile(rb"[\xc0\xc1][\x80-\xbf]")
_BLANKS = " \t\r\n\ufeff\x00\x1e\x0b\x0c\x85\xa0\u2028\u2029"
_START = re.compile(rf"(?:[{_BLANKS}]|/\*.*?\*/|//[^\n]*\n|#[^\n]*\n|[)\]}}]+')*[{{\[]", re.DOTALL)
_TOKEN = re.compile(
    r"""/\*.*?\*/|//[^\n]*|#[^\n]*|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}\[\],:]|[^\s{}\[\],:"]+""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)


class Pairs(list[tuple[str, Any]]):
    """An object with every key kept, in order, duplicates too."""


def _scalar(token: str) -> Any:
    if token.startswith('"'):
        try:
            return json.loads(token, strict=False)
        except ValueError:
            return unescaped(token[1:-1])
    if token.startswith("'"):
        return unescaped(token[1:-1])
    try:
        return json.loads(token) if len(token) < 400 else token
    except ValueError:
        return token


def unescaped(text: str) -> str:
    """Undo escapes as Ruby and JSON5 do: unknown ones stand for their character."""
    return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)) if found[1] or found[2] else found[3], text)


def _tokens(text: str) -> Iterator[str]:
    """Return brackets and scalars; commas, colons and comments only separate."""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token not in ",:" and not token.startswith(("/*", "//", "#")):
            yield token


def values(text: str) -> Iterator[Any]:
    """Return every top-level array or object in `text`, skipping whatever is between them.

    Before the first one only blanks and comments are skipped: no reader we know of looks
    for a value behind words. Iterative, so that no nesting is too deep; objects come as Pairs.
    """
    if not _START.match(text):
        return
    stack: list[Any] = []
    keys: list[str | None] = []
    key: str | None = None
    for token in _tokens(text):
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
        elif stack:
            key = _take(stack[-1], key, _scalar(token))
    while stack:
        done, key = stack.pop(), keys.pop()
        if stack:
            _add(stack[-1], key, done)
        else:
            yield done


def _take(container: Any, key: str | None, value: Any) -> str | None:
    """Use a scalar as the next key where one is due, else as a value; return the key that waits."""
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
    """Fold a key as the laxest reader would: case, compatibility forms, blanks, hyphens; cut off at NUL (cJSON)."""
    folded = unicodedata.normalize("NFKC", key.partition("\0")[0] or key).casefold()
    return "".join(char for char in folded if char not in _BLANKS and char not in "\u200b-_")


def _choices(pairs: Pairs, wanted: str) -> list[Any]:
    found = [value for key, value in pairs if fold(key) == wanted]
    return found[:DUPLICATE_CHOICES]


def messages(value: Any) -> Iterator[Pairs]:
    """Return every object that stands where a message may stand: at the top, or in arrays there."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if isinstance(current, Pairs):
            yield current
            if all(key.isdigit() for key, _ in current):  # an array to PHP
                waiting.extend(value for _, value in reversed(current))
        elif isinstance(current, list) and any(item == "tools/call" for item in current):  # a struct to serde
            yield Pairs([("method", "tools/call"), ("params", current[-1])])
        elif isinstance(current, list):
            waiting.extend(reversed(current))


def calls_in(message: Pairs) -> Iterator[tuple[str, Any]]:
    """Return every tool call that `message` is under some choice among its duplicate keys."""
    if not any(_is_tools_call(method) for method in _choices(message, "method")):
        return
    for params in _choices(message, "params"):
        yield from _calls_in_params(params)


def _is_tools_call(method: Any) -> bool:
    """Compare as Node's property names, serde's enums and PHP's == do."""
    if isinstance(method, Pairs):
        return any(_is_tools_call(key) for key, _ in method)
    if isinstance(method, list):
        return any(_is_tools_call(item) for item in method)
    return method is True or (isinstance(method, str) and fold(method) == "tools/call")


def _calls_in_params(params: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(params, str):
        params = next(values(params), params)
    if isinstance(params, Pairs):
        for name, arguments in itertools.product(_choices(params, "name"), _choices(params, "arguments") or [None]):
            yield _name(name), plain(arguments)
    elif isinstance(params, list) and params:
        yield _name(params[0]), plain(params[1]) if len(params) > 1 else None


def _name(name: Any) -> str:
    while isinstance(name, list) and name and not isinstance(name, Pairs):
        name = name[0]
    return name if isinstance(name, str) else repr(name)


def plain(value: Any, depth: int = 6) -> Any:
    """Return `value` with objects as dicts (duplicate keys: all values in a list), cut off below `depth`."""
    if not depth:
        return "…"
    if isinstance(value, str) and value.lstrip(_BLANKS).startswith("{"):
        value = next(values(value), value)
    if isinstance(value, Pairs):
        return _merged(value, depth)
    if isinstance(value, list):
        return [plain(inner, depth - 1) for inner in value[:100]]
    return value


def _merged(pairs: Pairs, depth: int) -> dict[str, Any]:
    merged: dict[str, list[Any]] = {}
    for key, inner in pairs:
        merged.setdefault(fold(key), []).append(plain(inner, depth - 1))
    return {key: found[0] if len(found) == 1 else found for key, found in merged.items()}


def _values_of_lines(text: str) -> Iterator[Any]:
    """Return the first value of each line that begins with one: a bridge to stdio passes lines on."""
    lines = re.split(r"[\r\n]+", text)
    for line in lines[1:1000]:
        if line.lstrip()[:1] == "{":
            with contextlib.suppress(ValueError):
                yield json.JSONDecoder(object_pairs_hook=Pairs, strict=False).raw_decode(line.lstrip())[0]


_BLOCK = re.compile(r"(?:[ \t]*#[^\n]*\n|---\n)*((?:(?:[\w/-]+|\"\w+\"): ?[^\n]*\n|  [^\n]*\n)+)")


def block_values(text: str) -> Iterator[Any]:
    """Return the mapping that YAML or HJSON without brackets makes of `text`: two levels of it."""
    if not (block := _BLOCK.fullmatch(text.rstrip("\n") + "\n")):
        return
    inner = re.sub(r"([\w/\"-]+): *\n((?:  [^\n]*\n)+)", r"\1: {\n\2}\n", block[1])
    yield from values(f"{{{inner}}}")


def find_calls(body: bytes, charset: str | None = None) -> tuple[list[tuple[str, Any]], Any]:
    """Return every distinct tool call in `body` under any reading, and the first message's id."""
    found: dict[str, tuple[str, Any]] = {}
    ids: list[Any] = []
    for data in decompressed(body):
        for text in texts(data, charset):
            more = (*_values_of_lines(text), *block_values(text)) if len(text) < SHORT else ()
            for value in (*values(text), *more):
                for message in messages(value):
                    ids += _choices(message, "id")[-1:]
                    for call in calls_in(message):
                        found.setdefault(json.dumps(call, default=repr), call)
    return list(found.values()), plain(ids[0]) if ids else None
