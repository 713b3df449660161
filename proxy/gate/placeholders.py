"""Where placeholders stand in a request, and how a value is written there in their place. Pure.

A placeholder is made of letters, digits, dots, dashes and underscores, so it stands unchanged in every place. Its
value is written as the place asks: percent-encoded in a path or a query, escaped in a string of JSON.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote_from_bytes

from proxy.core.vault import MARK, Place
from proxy.wire.mcp import decode_header, encode_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from proxy.core.vault import Secret
    from proxy.wire.mcp import Headers

    type Values = Mapping[str, Secret]

FORM: Final = "application/x-www-form-urlencoded"
MIRRORED: Final = "mcp-param-"
"""Headers of this prefix repeat an argument: they follow it."""
# What says where a request goes and how it is framed is no place for a credential.
_NO_PLACE: Final = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "mcp-method", "mcp-name", "upgrade")
)
# The characters of a path that need no escape; a value with slashes is several segments, as in a webhook's URL.
_IN_PATH: Final = "/!$&'()*+,;=:@~"
_TEXT_TYPES: Final = ("json", "text/", "xml", "javascript", "graphql", "yaml", "multipart/", FORM)
_REST_OF_STRING: Final = re.compile(rb'(?:[^"\\]|\\.)*"[ \t\r\n]*(:?)', re.DOTALL)
_SECTION: Final = b"<![CDATA["
_MARK: Final = MARK.encode()


class Spot(NamedTuple):
    """A text of a request's head with the mark of placeholders in it, and what has to hold for a value there."""

    place: Place
    text: str
    is_raw: bool = False
    """Whether a value stands there as it is, in a header."""


def spots(target: str, headers: Headers) -> Iterator[Spot]:
    """Return where placeholders may stand in a request's head."""
    path, _, query = target.partition("?")
    if MARK in path:
        yield Spot(Place.PATH, path)
    if MARK in query:
        yield Spot(Place.QUERY, query)
    for name, value in headers:
        lowered = name.lower()
        if lowered in _NO_PLACE or lowered.startswith(MIRRORED):
            continue
        if MARK in value:
            yield Spot(Place.HEADER, value, is_raw=True)
        elif (login := _login(value)) is not None and _MARK in login:
            yield Spot(Place.HEADER, login.decode("utf-8", "replace"))


def is_marked(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a header may hold a placeholder."""
    values = [value for _, value in fields]
    joined = b"\n".join(values)
    if _MARK in joined:
        return True
    return b"basic " in joined.lower() and any(_MARK in (_login(each.decode("latin-1")) or b"") for each in values)


def _login(value: str) -> bytes | None:
    """Return the decoded login of HTTP's Basic scheme; None where a header's value is none."""
    scheme, _, word = value.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    word = word.strip().rstrip("=")
    try:
        return base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_" if set(word) & {"-", "_"} else None)
    except (binascii.Error, ValueError):
        return None


def strings(value: Any) -> Iterator[str]:
    """Return every string in a JSON value that is no key."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


def fits_header(value: bytes) -> bool:
    """Return whether a value may be a part of a header: visible characters of Latin-1, and blanks inside."""
    try:
        text = value.decode()
        text.encode("latin-1")
    except UnicodeError:
        return False
    return text == text.strip() and text.replace(" ", "x").isprintable()


def fill_headers(fields: Iterable[tuple[bytes, bytes]], head: Values, arguments: Values) -> tuple[Any, ...]:
    """Return header fields with values in place of placeholders."""
    return tuple((name, _filled_field(name.lower(), value, head, arguments)) for name, value in fields)


def _filled_field(name: bytes, value: bytes, head: Values, arguments: Values) -> bytes:
    lowered = name.decode("latin-1")
    if lowered.startswith(MIRRORED):
        if not arguments:
            return value
        said = decode_header(value.decode("utf-8", "surrogateescape"))
        return encode_header(_swap(said, arguments, lambda raw: raw.decode())).encode()
    if lowered in _NO_PLACE or not head:
        return value
    if _MARK in value:
        # The field as text of one byte each: a value's characters are Latin-1 by now.
        return _swap(value.decode("latin-1"), head, lambda raw: raw.decode()).encode("latin-1")
    login = _login(value.decode("latin-1"))
    if login is None or _MARK not in login:
        return value
    return b"Basic " + base64.b64encode(_swap_bytes(login, head, lambda raw: raw))


def fill_target(target: str, head: Values) -> str:
    """Return a path and query with values in place of placeholders."""
    path, mark, query = target.partition("?")
    path = _swap(path, head, lambda raw: quote_from_bytes(raw, safe=_IN_PATH))
    return path + mark + _swap(query, head, lambda raw: quote_from_bytes(raw, safe="~"))


def fill_value(value: Any, values: Values) -> Any:
    """Return a JSON value whose strings, but not its keys, have values in place of placeholders. Keys stay."""
    if isinstance(value, str):
        return _swap(value, values, lambda raw: raw.decode()) if MARK in value else value
    if isinstance(value, dict):
        return {key: fill_value(child, values) for key, child in value.items()}
    return [fill_value(child, values) for child in value] if isinstance(value, list) else value


def is_text_body(media_type: str, body: bytes) -> bool:
    """Return whether a value may take a placeholder's place in a body: not where lengths of bytes are in it."""
    if any(word in media_type for word in _TEXT_TYPES):
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return media_type != "application/octet-stream"


def fill_body(body: bytes, media_type: str, values: Values) -> bytes:
    """Return a plain body with values in place of placeholders, written as its kind asks."""
    if FORM in media_type:
        return _swap_bytes(body, values, lambda raw: quote_from_bytes(raw, safe="").encode())
    if "json" in media_type or _is_json(body):  # lines of JSON, too, which are no JSON as a whole
        return _fill_json(body, values)
    if "xml" in media_type:
        return _fill_xml(body, values)
    return _swap_bytes(body, values, lambda raw: raw)


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def _fill_json(body: bytes, values: Values) -> bytes:
    """Swap inside the strings of JSON that are no keys; all else stays byte for byte."""
    found = _pattern(values).finditer(body)
    out, end = bytearray(), 0
    rest, string_end = None, 0
    for match in found:
        if match.end() > string_end:  # many may stand in one string
            rest = _REST_OF_STRING.match(body, match.end())
            string_end = rest.end() if rest is not None else len(body)
        if rest is not None and rest[1]:
            continue
        text = values[match[0].decode()].reveal().decode()
        out += body[end : match.start()] + json.dumps(text, ensure_ascii=False)[1:-1].encode()
        end = match.end()
    return bytes(out + body[end:])


def _fill_xml(body: bytes, values: Values) -> bytes:
    """Swap in XML: with entities, but for sections that have none."""

    def written(match: re.Match[bytes]) -> bytes:
        if match[0].startswith(_SECTION):
            return _swap_bytes(match[0], values, lambda raw: raw)
        return html.escape(values[match[0].decode()].reveal().decode()).encode()

    sections = re.escape(_SECTION) + rb"(?s:.*?)(?:\]\]>|\Z)"
    return re.sub(sections + b"|" + _pattern(values).pattern, written, body)


def _swap(text: str, values: Values, write: Callable[[bytes], str]) -> str:
    for placeholder, secret in values.items():
        text = text.replace(placeholder, write(secret.reveal())) if placeholder in text else text
    return text


def _swap_bytes(data: bytes, values: Values, write: Callable[[bytes], bytes]) -> bytes:
    if not values:
        return data
    return _pattern(values).sub(lambda match: write(values[match[0].decode()].reveal()), data)


def _pattern(values: Values) -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.escape(each.encode()) for each in sorted(values, key=len, reverse=True)))
