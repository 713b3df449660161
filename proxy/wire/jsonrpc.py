"""Strict JSON and JSON-RPC 2.0: bytes to one value that every server would read alike.

Pure. What this reader accepts has a single meaning in every JSON parser we know of; what has two (duplicate keys, NaN,
a byte order mark, `Method` beside `method`, …) it refuses. `serialise` returns the one encoding that is forwarded, so
that a server never parses bytes that were not parsed here.
"""

from __future__ import annotations

import json
import math
import unicodedata
from typing import Any, Never

from proxy.core.json_codec import encode_canonical, encode_json, is_heavy, read_quickly
from proxy.core.model import Json, JsonObject, Kind, Message, MessageId
from proxy.errors import WireError

# Python's modern server and TypeScript's read a call nested 100,000 deep, where `json.loads` raises.
MAX_DEPTH = 100
# Node rounds long ones, so that two ids become one, and reads 5,000 digits, where `json.loads` raises.
MAX_INTEGER_DIGITS = 20


class FoldedNames(dict[str, str]):
    """Names, each under the forms in which lenient parsers compare it."""

    def __init__(self, *names: str) -> None:
        # `meta` is a name like any other, though fastjson takes it for `_meta`.
        super().__init__({fold_key(name): name for name in names if not name.startswith("_")})
        self.update({name.casefold(): name for name in names})
        self.written = frozenset(names)


def plain(text: str) -> str:
    """Reduce a key or method to what the most lenient comparison would see."""
    # Go's encoding/json compares keys by case folding (`Method`, `param\u017f`); others strip blanks and controls.
    folded_text = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    if folded_text.isalnum():
        return folded_text
    return "".join(c for c in folded_text if unicodedata.category(c)[0] not in "CZ")


def fold_key(key: str) -> str:
    """Reduce a key to what the laxest parser compares: cJSON ends it at NUL, fastjson drops `-` and `_`."""
    folded_key = plain(key.partition("\0")[0] or key)
    return folded_key.replace("-", "").replace("_", "")


ENVELOPE = FoldedNames("jsonrpc", "id", "method", "params", "result", "error")


def parse_json(data: bytes) -> Json:
    """Parse `data` as exactly one JSON value.

    Raises WireError with the reason: `not_utf8`, `byte_order_mark`, `not_json`, `duplicate_key`, `not_finite`,
    `integer_too_long`, `too_deep`, `lone_surrogate`.
    """
    return read_json(data)[0]


def read_json(data: bytes) -> tuple[Json, bytes | None]:
    """Parse as `parse_json` does; return beside the value the bytes to forward, where they are known by then."""
    quickly = read_quickly(data)
    value = _decode(data) if quickly is None else quickly[0]
    # Each level costs a bracket, so counting them spares most values the walk.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise WireError("too_deep", f"nested deeper than {MAX_DEPTH} levels")
    if quickly is not None:
        return quickly
    # Half a surrogate pair has no UTF-8, so it could not be forwarded as it came.
    if b"\\u" in data:
        _encode_strictly(value)
    return value, None


def _decode(data: bytes) -> Json:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError("not_utf8", f"byte {error.start} is not UTF-8") from error
    # The modern Python server and Node skip it, the legacy Python server refuses the body.
    if text.startswith("\ufeff"):
        raise WireError("byte_order_mark", "the body starts with a byte order mark")
    try:
        return _DECODER.decode(text)  # type: ignore[no-any-return]
    except RecursionError as error:
        raise WireError("too_deep", f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise WireError("not_json", str(error)) from error


def serialise(value: Json, *, small: bool = False) -> bytes:
    """Return the one encoding of `value`, for forwarding and for hashes: compact UTF-8, keys in their order.

    `small` where it is known to be. Raises WireError `lone_surrogate` where a string has half a surrogate pair.
    """
    encoded = encode_canonical(value) if small or not is_heavy(value) else None
    return encoded if encoded is not None else _encode_strictly(value)


def _encode_strictly(value: Json) -> bytes:
    try:
        return encode_json(value, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise WireError("lone_surrogate", "a string holds half a surrogate pair") from error


def reencode(value: Json) -> bytes:
    """Encode a value that came from a server in ASCII, whatever odd numbers or characters it holds."""
    # The same bytes in a tenth of the time, where they are ASCII anyway; `json` writes DEL as an escape.
    quick = None if is_heavy(value) else encode_canonical(value)
    if quick is not None and quick.isascii() and b"\x7f" not in quick:
        return quick
    return encode_json(value, ensure_ascii=True).encode()


def parse_message(value: Json) -> Message:
    """Return a parsed value as one JSON-RPC 2.0 message.

    Raises WireError: `not_an_object`, `misspelt_key`, `wrong_jsonrpc_version`, `ambiguous_message`, `bad_method`,
    `bad_params`, `bad_id`.
    """
    if not isinstance(value, dict):
        raise WireError("not_an_object", "a message is a JSON object")
    if not value.keys() <= ENVELOPE.written:
        refuse_misspelt(value, ENVELOPE)
    if value.get("jsonrpc") != "2.0":
        raise WireError("wrong_jsonrpc_version", f'jsonrpc is {value.get("jsonrpc")!r}, not "2.0"')
    return _parse_call(value) if "method" in value else _parse_response(value)


def refuse_misspelt(value: JsonObject, names: FoldedNames) -> None:
    """Raise WireError `misspelt_key` for a key that only a lenient parser (Go's, fastjson) takes for one of `names`."""
    for key in value:
        if key not in names.written and (meant := names.get(key.casefold()) or names.get(fold_key(key))):
            raise WireError("misspelt_key", f"key {key!r} stands for {meant!r} to some parsers")


def has_nul_key(value: Json) -> bool:
    """Return whether a key anywhere in `value` holds NUL, where C code (cJSON) ends it."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if any("\0" in key for key in item):
                return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def is_id(value: object) -> bool:
    """Return whether `value` can be a request's id: a string or an integer."""
    return type(value) is int or type(value) is str


def _parse_call(value: JsonObject) -> Message:
    # Python's servers run a request that has a `result`, too; TypeScript's do not.
    if "result" in value or "error" in value:
        raise WireError("ambiguous_message", "a message with both a method and a result or error")
    method = value["method"]
    # Node's `handlers[msg.method]` reads ["tools/call"] as the string, and PHP's == any true value.
    if not isinstance(method, str):
        raise WireError("bad_method", f"method is {type(method).__name__}, not a string")
    if not isinstance(value.get("params", {}), dict):
        raise WireError("bad_params", "params is not an object")
    if "id" not in value:
        return Message(Kind.NOTIFICATION, value, method)
    return Message(Kind.REQUEST, value, method, _checked_id(value["id"]))


def _parse_response(value: JsonObject) -> Message:
    if ("result" in value) == ("error" in value):
        raise WireError("ambiguous_message", "neither a call nor a response with one of result and error")
    if "id" not in value:
        raise WireError("bad_id", "a response without an id")
    return Message(Kind.RESPONSE, value, None, _checked_id(value["id"]))


def _checked_id(value: Any) -> MessageId:
    # TypeScript reads the id 1.0 as 1, and answers to that.
    if not is_id(value):
        raise WireError("bad_id", f"id is {json.dumps(value)[:40]}; it must be a string or an integer")
    return value  # type: ignore[no-any-return]


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    # Servers take the last of duplicate keys; who decides on the first decides on another call.
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise WireError("duplicate_key", f"key {twice!r} stands twice in one object")
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS and len(text.lstrip("-")) > MAX_INTEGER_DIGITS:
        raise WireError("integer_too_long", f"an integer of more than {MAX_INTEGER_DIGITS} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise WireError("not_finite", f"{text[:20]} is beyond the range of numbers")
    return value


def _constant(text: str) -> Never:
    # Python servers read NaN and Infinity, Node refuses the body.
    raise WireError("not_finite", f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)


def _deeper_than(value: Json, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        containers = (node for node in level if isinstance(node, dict | list))
        level = [child for node in containers for child in (node.values() if isinstance(node, dict) else node)]
        if not level:
            return False
    return any(isinstance(node, dict | list) for node in level)
