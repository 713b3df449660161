"""JSON with comments and trailing commas, as clients accept it: values with their positions. Pure."""

from __future__ import annotations

import json
import re

from proxy.agent.config_tree import Member, Node, Tree
from proxy.errors import ConfigError

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = r'"(?:[^"\\]|\\.)*+"'
_COMMENT = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_DECODER = json.JSONDecoder()


def parse(text: str) -> Tree:
    """Parse an object. Raises ConfigError."""
    plain = _without_comments(text)
    try:
        value = json.loads(plain)
    except json.JSONDecodeError as error:
        raise ConfigError(f"it is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise ConfigError("it is not JSON that can be read: it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ConfigError(f"it contains {type(value).__name__}, not an object with servers")
    return Tree(text, plain, _node(plain, _skip(plain, 0)))


def encode(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


def _without_comments(text: str) -> str:
    """Blank out comments, trailing commas and a byte order mark, which many clients accept."""
    # Spaces of the same length: positions in the result are positions in the file.
    bare = _COMMENT.sub(_blank, text.replace("\ufeff", " ", 1) if text.startswith("\ufeff") else text)
    return _TRAILING_COMMA.sub(_blank, bare)


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\r\n]", " ", found[0])


def _node(text: str, start: int) -> Node:
    """Return the value at `start`; the text must be well-formed."""
    if text[start] == "{":
        return _object(text, start)
    if text[start] == "[":
        return _list(text, start)
    value, end = _DECODER.raw_decode(text, start)
    return Node(start, end, value)


def _object(text: str, start: int) -> Node:
    members: list[Member] = []
    position = _skip(text, start + 1)
    while text[position] != "}":
        key, after = _DECODER.raw_decode(text, position)
        node = _node(text, _skip(text, _skip(text, after) + 1))
        members.append(Member(key, position, node))
        position = _past_comma(text, node.end)
    return Node(start, position + 1, members=members)


def _list(text: str, start: int) -> Node:
    items: list[Node] = []
    position = _skip(text, start + 1)
    while text[position] != "]":
        items.append(_node(text, position))
        position = _past_comma(text, items[-1].end)
    return Node(start, position + 1, items=items)


def _past_comma(text: str, position: int) -> int:
    position = _skip(text, position)
    return _skip(text, position + 1) if text[position] == "," else position


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()
