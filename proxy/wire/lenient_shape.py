"""Does a value have the shape of a message, to some server? Pure.

The values are those of the strict reader (dicts and lists), of `json` with repeated keys (`Pairs`), or of the lenient
reader (`Node`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.wire.lenient_names import is_call_method, is_plain_method, key_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import MessageId

ENVELOPE: Final = frozenset(("jsonrpc", "id", "method", "params", "result", "error"))
_ID = re.compile(r"-?[0-9]{1,20}")
# YAML's anchors, aliases and tags: what they stand for is not looked up.
MERGE: Final = "<<"
_REFERENCES: Final = ("*", "&", "!")
_TRUE: Final = frozenset(("true", "yes", "on"))
# Levels below a member `method` in which its name may stand: an array (Node), an enum (serde).
_METHOD_DEPTH: Final = 3

type Member = tuple[str | None, list[Any]]


class TooLongError(Exception):
    """The text is too long to be read in every way."""


class Pairs(list[tuple[str, Any]]):
    """An object's members in their order, repeated keys and all."""


class Word(str):
    """A word without quotes, as it stands in a text."""

    __slots__ = ()


class Quoted(str):
    """The inside of a quoted string, as it stands in a text: its escapes are not decoded."""

    __slots__ = ()


class Node:
    """An object or an array of a lenient reading: its members in their order, each value as its tokens."""

    __slots__ = ("_key", "_separated", "_value", "is_list", "members")

    def __init__(self, *, is_list: bool) -> None:
        self.is_list = is_list
        self.members: list[Member] = []
        self._key: str | None = None
        self._separated = False
        self._value: list[Any] = []

    @property
    def wants_value(self) -> bool:
        """Whether the next token begins a value."""
        return not self._value and (self.is_list or self._separated)

    def add(self, token: Any) -> None:
        self._value.append(token)

    def separate(self) -> None:
        """Take the last word for a key; where the member has one already, the next member begins with it."""
        word = self._value.pop() if self._value and isinstance(self._value[-1], str) else None
        if self._separated or self._value:
            self.end_member()
        self._key, self._separated = word, True

    def end_member(self) -> None:
        if self._separated or self._value:
            self.members.append((self._key, self._value))
        self._key, self._separated, self._value = None, False, []


def find_message(value: Any) -> Any | None:
    """Return what stands where a message may stand and some server takes for one; None where nothing does.

    That is the value itself, or one in arrays there. PHP reads an object with the keys 0, 1, 2 as an array.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if _is_container(item):
            members = _members(item)
            if is_message(members) or (_is_array(item) and _is_struct(members)):
                return item
            if _is_array(item) or _is_numbered(members):
                stack.extend(part for _, values in reversed(members) for part in values if _is_container(part))
    return None


def is_message(members: list[Member]) -> bool:
    """Return whether an object is MCP's to the most lenient server; keys may repeat."""
    found: dict[str, list[list[Any]]] = {}
    for key, values in members:
        if key is not None:
            for name in (key,) if key in ENVELOPE else key_names(key, raw=isinstance(key, Quoted)) & ENVELOPE:
                found.setdefault(name, []).append(values)
    versioned, params = "jsonrpc" in found, found.get("params", [])
    # A response counts, too: it may unblock a tool that waits for sampling or elicitation.
    if versioned and ("result" in found or "error" in found):
        return True
    if any(isinstance(key, Word) and _stands_for_others(key, found) for key, _ in members):
        return True
    methods = [part for values in found.get("method", ()) for part in _spellings(values, _METHOD_DEPTH)]
    if any(is_call_method(text, raw=isinstance(text, Quoted)) for text in methods if isinstance(text, str)):
        return True
    if any(_is_odd(part, versioned=versioned) for part in methods):
        return versioned or bool(params)
    # Bitcoin's nodes have a `ping`, with an array of parameters; MCP has none with an array.
    positional = bool(params) and all(len(values) == 1 and _is_array(values[0]) for values in params)
    return versioned and not positional and any(is_plain_method(m) for m in methods if isinstance(m, str))


def _stands_for_others(key: Word, found: dict[str, list[list[Any]]]) -> bool:
    """Return whether a key of YAML's stands for members that are written elsewhere; they are not looked up."""
    return key == MERGE or (key.startswith("*") and bool(found))


def is_request(message: Any) -> bool:
    """Return whether a found message asks for something, by what JSON-RPC wants of a request."""
    names = {name for key, _ in _members(message) if key is not None for name in key_names(key, raw=True)}
    return _is_array(message) or ("method" in names and bool(names & {"jsonrpc", "id"}))


def method_of(message: Any) -> str | None:
    """Return the method of a found message as it is written; an empty text where it is no string."""
    if _is_array(message):
        return ""
    found = [values for key, values in _members(message) if key is not None and "method" in key_names(key, raw=True)]
    if not found:
        return None
    return str(found[-1][-1]) if found[-1] and isinstance(found[-1][-1], str) else ""


def request_id(message: Any) -> MessageId | None:
    """Return the id of a message that the lenient reader found, where it has one that can be answered."""
    for key, values in _members(message):
        if key is not None and len(values) == 1 and "id" in key_names(key, raw=True):
            return _readable_id(values[0])
    return None


def _readable_id(value: Any) -> MessageId | None:
    if isinstance(value, Word):
        return int(value) if _ID.fullmatch(value) else None
    if isinstance(value, str) and ("\\" in value or not value.isprintable()):
        return None
    return value if type(value) is int else str(value) if isinstance(value, str) else None


def _spellings(values: list[Any], depth: int) -> Iterator[Any]:
    """Return all that the value of a member `method` may be taken for."""
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) > 1:
        yield Quoted("".join(texts))
    for value in values:
        if _is_container(value):
            if depth:
                for key, inner in _members(value):
                    yield from () if key is None else (key,)
                    yield from _spellings(inner, depth - 1)
        else:
            yield value


def _is_odd(value: Any, *, versioned: bool) -> bool:
    """Return whether a method is no string, and yet equal to one to some servers: PHP's `true == "tools/call"`."""
    if isinstance(value, Word):
        return value.startswith(_REFERENCES) or value.casefold() in _TRUE or (versioned and value.isdigit())
    return value is True or (versioned and not isinstance(value, str))


def _is_struct(members: list[Member]) -> bool:
    """Return whether an array is a message to Rust's serde, which reads the fields of a struct by position."""
    scalars = [part for key, values in members if key is None for part in values if isinstance(part, str)]
    # Most strings in an array hold neither, and need no closer look.
    suspects = [text for text in scalars if "/" in text or "\\" in text or not text.isascii()]
    called = any(is_call_method(text, raw=isinstance(text, Quoted)) for text in suspects)
    versioned = "2.0" in scalars
    if not called and not (versioned and any(is_plain_method(text) for text in scalars)):
        return False
    return versioned or any(_is_container(part) for _, values in members for part in values)


def _is_numbered(members: list[Member]) -> bool:
    return all(key is not None and (key.isdigit() or key == "length") for key, _ in members)


def _is_container(value: Any) -> bool:
    return isinstance(value, dict | list | Node)


def _is_array(value: Any) -> bool:
    return value.is_list if isinstance(value, Node) else isinstance(value, list) and not isinstance(value, Pairs)


def _members(value: Any) -> list[Member]:
    if isinstance(value, Node):
        return value.members
    if isinstance(value, dict):
        return [(key, [member]) for key, member in value.items()]
    if isinstance(value, Pairs):
        return [(key, [member]) for key, member in value]
    return [(None, [member]) for member in value] if isinstance(value, list) else []
