"""Parsing a body: is it an MCP message? The body alone decides that, not its path or its type.

Pure. A body is read strictly; where that fails it is read the way the most lenient server might. `NotMcp` means that
no server could take it for an MCP message; whatever is in between is a `RefusedBody`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from proxy.core.model import Json, JsonObject, Message, MessageId, ToolCall, frozen
from proxy.errors import WireError
from proxy.wire.content_coding import (
    MAX_CODINGS,
    codings,
    decode_body,
    decode_overlong,
    decode_start,
    decode_text,
    is_no_charset,
    odd_charsets,
    sniff_coding,
    wide_texts,
)
from proxy.wire.form_fields import field_texts, find_in_form, find_in_query, query_texts
from proxy.wire.json_sniff import SKIPPED, could_be_lenient, is_string, is_undecided, line_views
from proxy.wire.json_sniff import could_be_json as could_be_json  # noqa: PLC0414  part of what this module offers
from proxy.wire.jsonrpc import MAX_INTEGER_DIGITS, has_nul_key, is_id, parse_json, parse_message, read_json
from proxy.wire.lenient import find_call
from proxy.wire.lenient_names import has_call_words, has_message_words
from proxy.wire.lenient_shape import Pairs, TooLongError, find_message, is_request, method_of, request_id
from proxy.wire.mcp import SURELY_MCP, check_message

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@frozen()
class SingleMessage:
    """One well-formed MCP message."""

    message: Message
    call: ToolCall | None = None  # the tool call it makes, if it does
    encoded: bytes | None = None  # the message as it is forwarded, where parsing it made that known
    unpacked: int = 0  # how many bytes it was decoded to, where it came in a content coding


@frozen()
class MessageBatch:
    """Several messages in one body, which is refused whole."""

    values: tuple[JsonObject, ...]


@frozen()
class NotMcp:
    """Nothing in it is MCP's."""


@frozen()
class RefusedBody:
    """Some server might run it, and not every server would read it alike."""

    reason: str
    detail: str
    id: MessageId | None = None
    method: str | None = None


type ParsedBody = SingleMessage | MessageBatch | NotMcp | RefusedBody
NOT_MCP = NotMcp()
READ_AT_ONCE = 1 << 16  # bytes up to which a message is worked on at once; larger ones in a thread, to serve others
# What an undeclared coding may make of a body before it is refused unread.
SNIFF_LIMIT = 1 << 26
# Past so many JSON values one after the other, the rest is judged by its words alone.
MAX_VALUES = 100_000
# Past so many objects and commas a body is judged by its words alone: each costs a parser a value.
MAX_PARTS = 1 << 20

ON_A_LINE = WireError("not_json", "a message stands on a line of its own among others")
NO_JSON = WireError("not_json", "some servers read a message in it, though it is no JSON")

# A line that begins as JSON, or with a comment that may stand before it.
_JSON_LINE = re.compile(
    rb"(?:\A|(?<=[\r\n]))[" + re.escape(SKIPPED.translate(None, b"\r\n")) + rb"]*+(?:[{\[\"]|/\0*\*)[^\r\n]*+"
)
_BLANKS = " \t\r\n\ufeff\0"
_SPACE = re.compile(r"[\s\ufeff\x00\x1e]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_body(
    body: bytes, *, content_types: Sequence[str] = (), encodings: Sequence[str] = (), limit: int = 1 << 26
) -> ParsedBody:
    """Parse a body (or WebSocket message, or line) from a client, with the values of its headers of those names."""
    if not body:
        return NOT_MCP
    applied = codings(encodings) if encodings else None
    parsed = _read_encoded(body, applied, content_types, limit) if applied else _read_undeclared(body, content_types)
    # Servers differ in which of two types they take, and each may mean another charset.
    if isinstance(parsed, SingleMessage) and len(content_types) > 1:
        return _refuse(parsed, "duplicate_header", "header Content-Type stands twice")
    return parsed


def read_plain(body: bytes) -> ParsedBody:
    """Parse bytes that are neither encoded nor in an odd charset."""
    # What most messages begin with needs no regular expression to be told from what is no JSON.
    if not body.startswith((b"{", b"[", b'"')) and not could_be_json(body):
        return _read_leniently(body, NO_JSON) if could_be_lenient(body) else NOT_MCP
    # One long string, whatever it holds, is cheap to parse; many small values are not.
    if len(body) > MAX_PARTS and not is_string(body) and body.count(b",") + body.count(b"{") > MAX_PARTS:
        return _read_leniently(body, WireError("body_too_large", f"more than {MAX_PARTS} values in one body"))
    try:
        value, encoded = read_json(body)
    except WireError as error:
        return _read_leniently(body, error)
    parsed = classify(value, encoded)
    # Strict JSON has one spelling for NUL, so most messages need no walk.
    if b"\\u0000" in body and isinstance(parsed, SingleMessage) and has_nul_key(value):
        return _refuse(parsed, "nul_in_key", "some servers end a key at NUL, and so read another one")
    return parsed


def _read_undeclared(body: bytes, content_types: Sequence[str], depth: int = 0) -> ParsedBody:
    """Parse a body without a declared coding; some servers know a compressed one by its first bytes."""
    parsed = _read_declared(body, content_types)
    coding = sniff_coding(body) if isinstance(parsed, NotMcp) else None
    if coding is None:
        return parsed
    if depth == MAX_CODINGS:
        return RefusedBody("stacked_encoding", f"more than {MAX_CODINGS} content codings")
    # A file in gzip is common and large: it is decoded whole only where its start leaves JSON possible.
    head = decode_start(body, coding)
    if not (could_be_json(head) or is_undecided(head) or sniff_coding(head) or odd_charsets(content_types)):
        return NOT_MCP
    try:
        inner = _read_undeclared(decode_body(body, [coding], SNIFF_LIMIT), content_types, depth + 1)
    except WireError as error:
        return NOT_MCP if error.reason == "encoding_mismatch" else RefusedBody(error.reason, error.detail)
    return _refuse(inner, "encoding_mismatch", f"the body is {coding} and does not say so")


def classify(value: Json, encoded: bytes | None = None) -> ParsedBody:
    """Return what a strictly parsed value is; `encoded` are the bytes to forward, where they are known."""
    if isinstance(value, dict):
        method = value.get("method")
        if isinstance(method, str) and method in SURELY_MCP:
            return _check_object(value, encoded)
    elif isinstance(value, str):
        return _refuse(_read_inside(value), "double_encoded", "JSON inside a JSON string")
    found = find_message(value)
    if found is None:
        return NOT_MCP
    if found is value and isinstance(found, dict):
        return _check_object(found, encoded)
    # TypeScript's server runs a batch in a session of any version. Arrays in arrays are read like one.
    if isinstance(found, dict):
        return MessageBatch(tuple(_objects(value)))
    return RefusedBody("not_an_object", "some servers read an array as a message, by position")


def _read_inside(text: str) -> ParsedBody:
    return read_plain(text.encode("utf-8", "replace"))


def _check_object(value: JsonObject, encoded: bytes | None) -> ParsedBody:
    try:
        message = parse_message(value)
        return SingleMessage(message, check_message(message), encoded)
    except WireError as error:
        return _refusal(value, error.reason, error.detail)


def _refusal(value: JsonObject, reason: str, detail: str) -> RefusedBody:
    request_id, method = value.get("id"), value.get("method")
    # The refusal is sent with the request's id, so the id must be one that can be written as UTF-8.
    answerable = is_id(request_id) and not (isinstance(request_id, str) and _SURROGATE.search(request_id))
    named = method if isinstance(method, str) else None
    return RefusedBody(reason, detail, request_id if answerable else None, named)


def _refuse(parsed: ParsedBody, reason: str, detail: str) -> ParsedBody:
    """Return the refusal of what was parsed, with its id; what is not MCP stays so, and a batch has its own."""
    match parsed:
        case SingleMessage(message=message):
            return _refusal(message.value, reason, detail)
        case RefusedBody(id=request_id, method=method):
            return RefusedBody(reason, detail, request_id, method)
        case _:
            return parsed


def _objects(value: Json) -> Iterator[JsonObject]:
    """Return the objects that stand where a message of a batch may; the keys of an array may be written out (PHP)."""
    stack: list[Any] = list(reversed(value.values() if isinstance(value, dict) else cast("list[Any]", value)))
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
        elif isinstance(item, list):
            stack.extend(reversed(item))


def _read_leniently(body: bytes, strict: WireError) -> ParsedBody:
    try:
        for text in _texts(body, strict):
            parsed = _read_lenient_text(text.lstrip("\ufeff\0"), strict)
            if not isinstance(parsed, NotMcp):
                return parsed
    except WireError as error:
        return RefusedBody(error.reason, error.detail)
    return NOT_MCP


def _texts(body: bytes, strict: WireError) -> Iterator[str]:
    """Return every text that some server may decode `body` to."""
    # TypeScript replaces invalid UTF-8 and reads on; Python's modern server detects UTF-16 and UTF-32 by itself.
    yield body.decode("utf-8", "replace")
    if b"\0" in body[:4096] or body[:1] in b"\xfe\xff":
        yield from wide_texts(body)
    if strict.reason in ("not_utf8", "body_too_large"):
        yield decode_overlong(body).decode("utf-8", "replace")


def _read_lenient_text(text: str, strict: WireError) -> ParsedBody:
    """Parse value after value, as a streaming decoder would; read the rest in every way there is."""
    position = count = 0
    affordable = len(text) <= MAX_PARTS
    while (start := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr]  # matches anything
        count += 1
        if not affordable and text[start] != '"':
            affordable = text.count(",", start) + text.count("{", start) <= MAX_PARTS
            if not affordable:
                return _judge_words(text[start:], strict)
        try:
            value, position = _LENIENT.raw_decode(text, start)
        except (ValueError, RecursionError):
            # A key may have been taken for a value by itself (YAML, HJSON).
            is_key = text[start] == ":" or text.lstrip(_BLANKS).startswith('"')
            begins = text if count == 1 or is_key else text[start:]
            return _judge_text(begins, strict)
        parsed = _judge_value(value, strict)
        if not isinstance(parsed, NotMcp):
            return parsed
        if count == MAX_VALUES:
            return _judge_words(text[position:], strict)
    return NOT_MCP


def _judge_value(value: Any, strict: WireError) -> ParsedBody:
    if isinstance(value, str):
        return _refuse(_read_inside(value), strict.reason, strict.detail)
    found = find_message(value)
    if found is None:
        return NOT_MCP
    if not isinstance(found, Pairs):
        return RefusedBody(strict.reason, strict.detail, method=method_of(found))
    return _refusal(dict(found), strict.reason, strict.detail)


def _judge_text(text: str, strict: WireError) -> ParsedBody:
    """Judge what is no JSON as the laxest parsers would read it."""
    try:
        found = find_call(text)
    except TooLongError:
        return _judge_words(text, strict)
    if found is None:
        return NOT_MCP
    return RefusedBody(strict.reason, strict.detail, request_id(found), method_of(found))


def _judge_words(text: str, strict: WireError) -> ParsedBody:
    return RefusedBody(strict.reason, strict.detail, method="") if has_message_words(text) else NOT_MCP


_LENIENT = json.JSONDecoder(
    object_pairs_hook=Pairs,
    # A long integer becomes a float, which is no id: it could not be answered with its own digits.
    parse_int=lambda text: int(text) if len(text) <= MAX_INTEGER_DIGITS else float(text),
    strict=False,
)


def _read_encoded(body: bytes, applied: list[str], content_types: Sequence[str], limit: int) -> ParsedBody:
    # Raw bytes first: both Python servers and TypeScript's ignore Content-Encoding, so a lie there executes.
    raw = _read_declared(body, content_types)
    if not isinstance(raw, NotMcp):
        return _refuse(raw, "encoding_mismatch", f"declared {', '.join(applied)}, but readable as it is")
    try:
        unpacked = decode_body(body, applied, limit)
        decoded = _read_undeclared(unpacked, content_types)
    except WireError as error:
        opaque = error.reason == "unknown_encoding" and not _says_json(content_types)
        if opaque or _is_strict_json(body):
            return _read_undeclared(body, content_types)
        return RefusedBody(error.reason, error.detail)
    if not isinstance(decoded, SingleMessage):
        return decoded
    if len(applied) > 1:
        return _refuse(decoded, "stacked_encoding", f"content codings {', '.join(applied)}")
    return replace(decoded, unpacked=len(unpacked))


def _says_json(content_types: Sequence[str]) -> bool:
    return any("json" in content_type.lower() for content_type in content_types)


def read_lines(body: bytes) -> ParsedBody:
    """Judge each line of what is not MCP as a whole: a reader of lines drops one it cannot parse, and reads on.

    So do bridges from HTTP to stdio. A call counts where it begins a line: by itself, or as JSON with anything behind.
    """
    for view in line_views(body):
        if not isinstance(parsed := _read_lines(view), NotMcp):
            return parsed
    return NOT_MCP


def _read_lines(body: bytes) -> ParsedBody:
    # Most bodies have many lines and no such word in any: one look at all of them is cheaper than one at each.
    if _JSON_LINE.search(body) is None or not has_call_words(body.replace(b"\0", b"").decode("utf-8", "replace")):
        return NOT_MCP
    for count, line in enumerate(_JSON_LINE.finditer(body)):
        if count == MAX_VALUES:
            return _judge_words(body[line.start() :].replace(b"\0", b"").decode("utf-8", "replace"), ON_A_LINE)
        parsed = _read_line(line[0])
        if not isinstance(parsed, NotMcp):
            return parsed
    return NOT_MCP


def _read_line(line: bytes) -> ParsedBody:
    if not has_call_words(line.replace(b"\0", b"").decode("utf-8", "replace")):
        return NOT_MCP
    for text in _texts(line, ON_A_LINE):
        try:
            found = _line_message(text)
        except TooLongError:
            return _judge_words(text, ON_A_LINE)
        # An object with a method alone is one like any other: in a log, in source code.
        if found is not None and is_request(found):
            return RefusedBody(ON_A_LINE.reason, ON_A_LINE.detail, request_id(found), method_of(found))
    return NOT_MCP


def _line_message(text: str, depth: int = 2) -> Any | None:
    begin = _SPACE.match(text)
    assert begin is not None, "the pattern matches nothing at all, too"
    try:
        value, _ = _LENIENT.raw_decode(text, begin.end())
    except (ValueError, RecursionError):
        return find_call(text, whole=True)
    if isinstance(value, str):
        return _line_message(value, depth - 1) if depth else None
    return find_message(value)


def _is_strict_json(body: bytes) -> bool:
    try:
        parse_json(body)
    except WireError:
        return False
    return True


def _read_declared(body: bytes, content_types: Sequence[str]) -> ParsedBody:
    """Parse bytes without a content coding, in whatever charset they are declared to be."""
    # A charset is a parameter, which most types lack: nothing is parsed for them.
    charsets = odd_charsets(content_types) if ";" in "".join(content_types) else ()
    parsed = _read_in_charset(body, charsets, content_types) if charsets else read_plain(body)
    if not isinstance(parsed, NotMcp):
        return parsed
    if find_in_form(body, content_types):
        return RefusedBody("call_in_fields", "the fields of a form make a message")
    texts = field_texts(body, content_types)
    if texts is None:
        return RefusedBody("call_in_fields", "more fields may be JSON than are read")
    for text in texts:
        if not isinstance(inside := read_plain(text), NotMcp):
            return _in_field(inside)
    return read_lines(body)


def _in_field(parsed: ParsedBody) -> RefusedBody:
    refused = _refuse(parsed, "call_in_fields", "a field holds a message")
    return refused if isinstance(refused, RefusedBody) else RefusedBody("call_in_fields", "a field holds messages")


def is_call_in_query(target: str, *, with_body: bool) -> bool:
    """Return whether the query of a request's target makes a message, or holds one in a field."""
    if find_in_query(target, with_body=with_body):
        return True
    query = target.partition("?")[2].encode("utf-8", "replace")
    texts = query_texts(query)
    return texts is None or any(not isinstance(read_plain(text), NotMcp) for text in texts)


def _read_in_charset(body: bytes, charsets: Sequence[str], content_types: Sequence[str]) -> ParsedBody:
    if len(charsets) > 1:
        return RefusedBody("odd_charset", f"charsets {', '.join(charsets)[:80]!r}; MCP is UTF-8")
    charset = charsets[0]
    refused = WireError("odd_charset", f"charset {charset[:40]!r}; MCP is UTF-8")
    # As UTF-8 first, since SDKs ignore the charset; then as aiohttp's `request.json()` would decode it.
    plainly = _refuse(read_plain(body), refused.reason, refused.detail)
    if not isinstance(plainly, NotMcp):
        return plainly
    try:
        text = decode_text(body, charset)
    except WireError as error:
        return RefusedBody(error.reason, error.detail)
    if text is None:
        # A charset that cannot be decoded here may be known to the server: refused unread where JSON is likely.
        hidden = charset.startswith("utf") or _says_json(content_types) or is_no_charset(charset)
        return RefusedBody(refused.reason, refused.detail) if hidden else NOT_MCP
    text = text.lstrip("\ufeff")
    head = text.encode("utf-8", "replace")
    return _read_lenient_text(text, refused) if could_be_json(head) or could_be_lenient(head) else NOT_MCP
