"""Calls in fields: forms, multipart bodies and query strings, as PHP and Express's `urlencoded` read them. Pure.

`method=tools/call&params[name]=x` is a JSON-RPC object to both. Where the fields come from does not matter to PHP's
`$_REQUEST`, so a method in the query counts with parameters in the body.
"""

from __future__ import annotations

import binascii
import contextlib
import re
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from proxy.wire.lenient_names import is_call_method, is_plain_method, key_names
from proxy.wire.mcp import METHOD_PREFIXES, PLAIN_METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Fields past which a body is refused where it has a method among them: each costs a look.
MAX_FIELDS: Final = 100_000
# Fields that may be JSON, and texts of parts, past which a body or a query is refused: each is parsed.
MAX_JSON_FIELDS: Final = 5_000
MAX_PART_TEXTS: Final = 30_000
MAX_VALUE: Final = 400
COMPANIONS: Final = frozenset(("jsonrpc", "params", "id"))


def _encoded(word: str) -> bytes:
    """Return a pattern for `word` with any of its characters percent-encoded, and with what servers drop between."""
    between = rb"(?:[-_+]|%[01][0-9a-f]|%20|%7f|%2d|%5f)*+"
    letters = (b"(?:%s|%%%02x|%%%02x)" % (re.escape(c).encode(), ord(c), ord(c.upper())) for c in word)
    return between.join(letters)


# One pass without going back: no body without such a value is taken apart.
_VALUE = re.compile(
    rb"=(?:[\s+]|%[01][0-9a-f]|%20|%22)*+(?:"
    + b"|".join(_encoded(word) for word in sorted({*METHOD_PREFIXES, *PLAIN_METHODS}))
    + b")",
    re.IGNORECASE,
)
# A value, or a key without one, that begins as JSON does.
_JSON_VALUE = re.compile(rb"(?:\A|[=&;?])(?:[\s+]|%0[9ad]|%20|%ef%bb%bf)*+(?:[{\[\"]|%7b|%5b|%22)", re.IGNORECASE)
# To Go a part with an empty file name is a field, and to all one whose other parameters speak of "filename".
_FILE = re.compile(rb";\s*+filename(?:\*[0-9]*+\*?)?\s*+=\s*+[^\s;]", re.IGNORECASE)
_QUOTED = re.compile(rb"\"((?:[^\"\\]|\\.)*+)\"", re.DOTALL)
_FIELD = re.compile(rb"[^&;]++")
_BEGINS = re.compile(rb"\s*+[^\s={}<>\"]{1,400}=")
_IN_FRONT: Final = "".join(map(chr, range(0x21))) + "[]"
_SEGMENT = re.compile(r"[^\[\].\s]+")
# Headers of any length and number: Go and multer read megabytes of them. Nothing is gone through twice.
_DISPOSITION = re.compile(rb"(?:\A|\n)content-disposition[ \t]*+:((?:[^\n]|\n[ \t])*+)", re.IGNORECASE)
_EMPTY_LINE = re.compile(rb"\n\r?\n")
_PART_END = re.compile(rb"\r?\n--|\Z")
# PHP takes single quotes as well.
_NAME = re.compile(
    rb"\bname(?:\*[0-9]*\*?)?\s*=\s*(?:\"((?:[^\"\\]|\\.)*+)\"?|'((?:[^'\\]|\\.)*+)'(?=[\s;]|\Z)|([^\s;]++))",
    re.IGNORECASE | re.DOTALL,
)


def find_in_query(target: str, *, with_body: bool) -> bool:
    """Return whether the query of a request's target holds a call, by itself or with the body's fields."""
    query = target.partition("?")[2].encode("utf-8", "replace")
    return bool(query) and _VALUE.search(query) is not None and _is_call(_form_fields(query), alone=not with_body)


def find_in_form(body: bytes, content_types: Sequence[str]) -> bool:
    """Return whether the fields of a body hold a call."""
    said = ",".join(content_types).lower()
    if b"=" not in body:
        return False
    if "multipart" in said or body.lstrip(b"\r\n")[:2] == b"--":
        return _is_call(_parts(body), alone=False)
    # PHP and Express go by the type, Rack also takes a body without one; others parse what looks like a form.
    form = not said.strip(", ") or "form" in said or _BEGINS.match(body) is not None
    return form and _VALUE.search(body) is not None and _is_call(_form_fields(body), alone=False)


def field_texts(body: bytes, content_types: Sequence[str]) -> list[bytes] | None:
    """Return what stands in the fields of a form and may be JSON (`payload={…}`); None where that is too many.

    Files in a form are no fields.
    """
    said = ",".join(content_types).lower()
    if "multipart" in said:
        return _few(_multipart_texts(body), MAX_PART_TEXTS)
    return query_texts(body) if "form" in said or not said.strip(", ") else []


def query_texts(data: bytes) -> list[bytes] | None:
    """Return the values, and the keys without one, that may be JSON in a form's or a query's fields.

    None where these are too many: a call may be in any of them.
    """
    return _few(_query_texts(data), MAX_JSON_FIELDS) if _JSON_VALUE.search(data) else []


def _few(texts: Iterator[bytes], most: int) -> list[bytes] | None:
    found = [*islice(texts, most + 1)]
    return found if len(found) <= most else None


def _query_texts(data: bytes) -> Iterator[bytes]:
    # Without a semicolon both ways to split give the same fields.
    for separators in (b"&", b"[&;]") if b";" in data else (b"&",):
        for field in re.split(separators, data):
            key, _, value = field.partition(b"=")
            # A value has no end in Base64 or in JSON without escapes: what stands behind "=" is part of it.
            yield from (_unescaped(text) for text in (value, key, field) if _JSON_VALUE.match(text))


def _multipart_texts(body: bytes) -> Iterator[bytes]:
    for disposition, begin in _heads(body):
        if not _FILE.search(_QUOTED.sub(lambda found: b"x" if found[1] else b"", disposition)):
            end = _PART_END.search(body, begin)
            yield from _part_texts(body[begin : end.start() if end else len(body)])


def _heads(body: bytes) -> Iterator[tuple[bytes, int]]:
    """Return the disposition of each part and where its value begins, wherever the boundaries are."""
    empty: re.Match[bytes] | None = None
    for found in _DISPOSITION.finditer(body):
        if empty is None or empty.start() < found.end():
            empty = _EMPTY_LINE.search(body, found.end())
        if empty is None:
            return
        yield found[1], empty.end()


def _unescaped(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _part_texts(value: bytes) -> Iterator[bytes]:
    yield value
    yield binascii.a2b_qp(value)
    with contextlib.suppress(binascii.Error):
        yield binascii.a2b_base64(value)


def _is_call(fields: Iterator[tuple[str, str]], *, alone: bool) -> bool:
    """Return whether a method of MCP's is among the fields, `alone` with another member of a message beside it."""
    called = pinged = False
    names: set[str] = set()
    for count, (key, value) in enumerate(fields):
        root = next((name for name in _SEGMENT.findall(key) if not name.isdigit()), "")
        found = key_names(root)
        names |= found
        if "method" in found:
            called = called or is_call_method(value)
            pinged = pinged or is_plain_method(value)
        if count == MAX_FIELDS:
            return True
    return (called and (not alone or bool(names & COMPANIONS))) or (pinged and "jsonrpc" in names)


def _form_fields(data: bytes) -> Iterator[tuple[str, str]]:
    for field in _FIELD.finditer(data):
        key, equals, value = field[0].partition(b"=")
        for name in key.split(b"?") if equals else ():
            # PHP drops blanks in front, Rack brackets, however many; and PHP ends a name at NUL.
            plain = _decoded(name).lstrip(_IN_FRONT)[:MAX_VALUE]
            yield plain, _decoded(value[: 3 * MAX_VALUE]).strip("\"' ")


def _decoded(text: bytes) -> str:
    return unquote_to_bytes(text.replace(b"+", b" ")).decode("utf-8", "replace")


def _parts(body: bytes) -> Iterator[tuple[str, str]]:
    """Return the parts of a multipart body by name, wherever its boundaries are; some once for each way to decode."""
    for disposition, begin in _heads(body):
        pieces = [_unquoted(found) for found in _NAME.finditer(disposition)]
        end = _PART_END.search(body, begin, begin + 2 * MAX_VALUE)
        value = body[begin : end.start() if end else begin + 2 * MAX_VALUE]
        for name in {"".join(pieces), *pieces}:
            for decoded in _transfer_decoded(value):
                yield name, decoded


def _unquoted(name: re.Match[bytes]) -> str:
    quoted = name[2] if name[1] is None else name[1]
    text = name[3] if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted)
    return _decoded(re.sub(rb"\A[\w-]*'[^']*'", b"", text))


def _transfer_decoded(value: bytes) -> Iterator[str]:
    value = value.replace(b"\0", b"")  # UTF-16 reads as ASCII without its zero bytes
    yield value.decode("utf-8", "replace").strip()
    yield binascii.a2b_qp(value).decode("utf-8", "replace").strip()
    try:
        yield binascii.a2b_base64(value).decode("utf-8", "replace").strip()
    except binascii.Error:
        return
