"""MCP messages: methods, tool calls, and the headers that must agree with a body.

Pure. The body decides; headers are only ever checked against it.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from dataclasses import field
from typing import TYPE_CHECKING, Any

from proxy.core.model import JsonObject, Message, ToolCall, frozen
from proxy.errors import WireError
from proxy.wire import a2a
from proxy.wire.jsonrpc import FoldedNames, parse_json, parse_message, plain, refuse_misspelt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


TOOLS_CALL = "tools/call"
MODERN = "2026-07-28"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
HEADER_MISMATCH = -32020

PLAIN_METHODS = frozenset({"initialize", "ping"})
_METHODS_BY_PREFIX = {
    "completion/": ("complete",),
    "elicitation/": ("create",),
    "logging/": ("setLevel",),
    "notifications/": ("cancelled", "initialized", "progress"),
    "prompts/": ("get", "list"),
    "resources/": ("list", "read", "subscribe", "templates/list", "unsubscribe"),
    "roots/": ("list",),
    "sampling/": ("createMessage",),
    "server/": ("discover",),
    "subscriptions/": ("listen",),
    "tasks/": ("cancel", "get", "list", "result", "update"),
    "tools/": ("call", "list"),
}
METHOD_PREFIXES = tuple(_METHODS_BY_PREFIX)
# Methods that make a message one of MCP's, whatever else is in it.
OWN_METHODS = frozenset(prefix + name for prefix, names in _METHODS_BY_PREFIX.items() for name in names)
# Agents speak to each other in messages of the same form (A2A), which the gate decides on in the same way.
SURELY_MCP = OWN_METHODS | a2a.SLASHED
METHODS = FoldedNames(*PLAIN_METHODS, *SURELY_MCP, *a2a.NAMED)
PARAM_KEYS = FoldedNames(
    "name", "arguments", "uri", "task", "taskId", "_meta", "inputResponses", "requestState", "cursor", "ref"
)
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel", "tasks/result"), "taskId"),
}
MAX_TOOL_NAME = 256
UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Letters and symbols that look like white space: fillers of Hangul, and Braille's empty cell.
BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_METHOD = re.compile(r"[A-Za-z][A-Za-z0-9_.$/-]*")
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,4})?")

type Headers = Iterable[tuple[str, str]]  # may be gone through several times


def is_mcp_method(method: str) -> bool:
    """Return whether `method`, written exactly so, is MCP's."""
    return method in PLAIN_METHODS or method in a2a.METHODS or method.startswith(METHOD_PREFIXES)


def refuse_misspelt_method(method: str) -> None:
    """Raise WireError `misspelt_method` for a method that only a lenient server takes for one of MCP's."""
    meant = METHODS.get(plain(method), method)
    if meant != method or not is_mcp_method(method) or not _METHOD.fullmatch(method):
        raise WireError("misspelt_method", f"method {method[:60]!r} stands for {meant[:60]!r} to some servers")


def parse_mcp_request(body: bytes) -> ToolCall | None:
    """Return the tool call in `body`; None where it is not one.

    Not JSON, a wrong or missing `jsonrpc`, another method, no params or a name that is not a string: not a tool call.
    Missing arguments are None.
    """
    try:
        return parse_tool_call(parse_message(parse_json(body)))
    except WireError:
        return None


def parse_tool_call(message: Message) -> ToolCall | None:
    """Return the tool call of a message, None for other methods. Raises WireError `bad_tool_call` if servers differ."""
    return _parse_params(message.params) if message.method == TOOLS_CALL else None


def _parse_params(params: JsonObject) -> ToolCall:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise WireError("bad_tool_call", "tools/call without a tool's name as a string")
    _check_tool_name(name)
    if arguments is not None and not isinstance(arguments, dict):
        raise WireError("bad_tool_call", f"arguments is {type(arguments).__name__}, not an object")
    return ToolCall(name, arguments)


def _check_tool_name(name: str) -> None:
    # Some servers trim names, and C code ends them at NUL (cJSON): a rule for `read` must not meet `read\0x`.
    if len(name) > MAX_TOOL_NAME:
        raise WireError("bad_tool_call", f"a tool's name of more than {MAX_TOOL_NAME} characters")
    if name.isascii() and name.isprintable() and name.strip() == name:
        return
    hidden = {char for char in name if unicodedata.category(char) in UNSEEN_CATEGORIES}
    hidden |= {char for char in name[:1] + name[-1:] if char.isspace() or char in BLANK_LETTERS}
    if hidden:
        raise WireError("bad_tool_call", f"a tool's name with {min(hidden)!a} in it, which servers may drop")


def check_message(message: Message) -> ToolCall | None:
    """Return the tool call that `message` makes, if it does, once its parameters mean the same to every server.

    Raises WireError `misspelt_method`, `misspelt_key` or `bad_tool_call`.
    """
    method, params = message.method, message.value.get("params")
    if method is None:
        return None
    if not isinstance(params, dict):
        params = {}  # no object, no names to check; a tools/call is refused below for having none
    if method not in METHODS.written:
        refuse_misspelt_method(method)
    if not params.keys() <= PARAM_KEYS.written:
        refuse_misspelt(params, PARAM_KEYS)
    return _parse_params(params) if method == TOOLS_CALL else None


@frozen()
class RequestHead:
    """A request's headers, few of which matter to most requests; iterating goes through all of them."""

    content_types: Sequence[str]
    encodings: Sequence[str]
    mcp: Sequence[tuple[str, str]]  # those that repeat what stands in the body
    whole: Callable[[], Iterable[tuple[str, str]]] = field(default=tuple, compare=False)
    is_marked: bool = True
    """Whether a header may hold the placeholder of a credential."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.whole())


def read_head(headers: Headers) -> RequestHead:
    named = [(name.lower(), name, value) for name, value in headers]
    content_types = [value for lowered, _, value in named if lowered == "content-type"]
    encodings = [value for lowered, _, value in named if lowered == "content-encoding"]
    mcp = [(name, value) for lowered, name, value in named if lowered.startswith("mcp-")]
    return RequestHead(content_types, encodings, mcp, lambda: headers, bool(named))


def check_headers(message: Message, headers: Headers) -> None:
    """Raise WireError `duplicate_header` or `header_mismatch` for MCP headers that disagree with the body."""
    # Refused even where both agree with the body: the Python SDK reads the first of two, Node joins them.
    mcp: dict[str, str] = {}
    for raw_name, value in headers:
        name = raw_name.lower()
        if name.startswith("mcp-"):
            if name in mcp:
                raise WireError("duplicate_header", f"header {raw_name!r} stands twice")
            mcp[name] = value
    for name, value in mcp.items():
        if not _agrees(name, value, message):
            raise WireError("header_mismatch", f"header {name!r} does not match the body")


def _agrees(name: str, value: str, message: Message) -> bool:
    if name == "mcp-method":
        return decode_header(value) == (message.method or "")
    if name == "mcp-name":
        return bool(decode_header(value) == message.params.get(NAMED_BY.get(message.method or "", "name"), ""))
    if name.startswith("mcp-param-"):
        said = decode_header(value)
        return any(_encodes(said, scalar) for scalar in _scalars(message.params.get("arguments")))
    return True


def mirrored_headers(before: Message, after: Message, headers: Headers) -> dict[str, str]:
    """Return the MCP headers to change from `before` to `after`. Raises WireError `header_mismatch` where unknown."""
    changed: dict[str, str] = {}
    for name, value in headers:
        lowered = name.lower()
        if lowered == "mcp-name":
            key = NAMED_BY.get(after.method or "", "name")
            changed[name] = encode_header(str(after.params.get(key, "")))
        elif lowered.startswith("mcp-param-"):
            old, new = before.params.get("arguments"), after.params.get("arguments")
            changed[name] = encode_header(_mirrored(decode_header(value), old, new))
    return changed


def _mirrored(said: str, before: Any, after: Any) -> str:
    """Return what stands in `after` where the header's value stands in `before`."""
    old, new = list(_scalars(before)), list(_scalars(after))
    found = {_encode_scalar(now) for was, now in zip(old, new, strict=False) if _encodes(said, was)}
    if len(old) != len(new) or len(found) != 1:
        raise WireError("header_mismatch", "an Mcp-Param header cannot follow its masked argument")
    return found.pop()


def decode_header(value: str) -> str:
    """Decode the `=?base64?…?=` form of a header value. Raises WireError `header_mismatch`."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode("utf-8")
    except ValueError as error:  # not ASCII, not base64, or not UTF-8 inside
        raise WireError("header_mismatch", "a header value is not valid =?base64?…?=") from error


def encode_header(value: str) -> str:
    """Encode `value` so that it survives as a header value."""
    plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?")
    return value if plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _scalars(value: Any) -> Iterator[str | float]:
    if isinstance(value, dict):
        for child in value.values():
            yield from _scalars(child)
    elif isinstance(value, str | int | float):
        yield value


def _encodes(said: str, value: str | float) -> bool:
    """Return whether a header value stands for `value`; a number has several forms (1e-05, 0.00001)."""
    if isinstance(value, bool | str):
        return said == _encode_scalar(value)
    if not _NUMBER.fullmatch(said):
        return False
    return (int(said) if said.lstrip("-").isdigit() else float(said)) == value


def _encode_scalar(value: str | float) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
