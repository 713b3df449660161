"""TOML: values with their positions. Pure.

tomllib reads the values and decides what is well-formed; the scanner here only finds where they stand. What the two
do not agree on is refused.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from proxy.agent.config_tree import Member, Node, Tree
from proxy.errors import ConfigError

_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRINGS = (
    re.compile(r'"""(?:[^\\"]|\\.|"{1,2}(?!"))*+"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']|'{1,2}(?!'))*+'{3,5}", re.DOTALL),
    re.compile(r'"(?:[^"\\\n]|\\.)*+"'),
    re.compile(r"'[^'\n]*'"),
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# Numbers, dates and booleans; a date may have a space before its time.
_SCALAR = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d[\d:.+Zz-]*|[^\s,\]}#]+")


def parse(text: str) -> Tree:
    """Parse a document. Raises ConfigError."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"it is not TOML: {error}") from error
    root = Node(members=[], on_lines=True)
    try:
        _scan(text, root)
    except (ValueError, IndexError, RecursionError) as error:
        raise ConfigError(f"its TOML cannot be edited safely: {error}") from error
    if _data(root) != value:
        raise ConfigError("its TOML cannot be edited safely: its parts could not be located")
    return Tree(text, text, root)


def encode(word: str) -> str:
    # JSON's escapes are TOML's too, but for DEL.
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")


def _scan(text: str, root: Node) -> None:
    table, position = root, _match(_GAP, text, 0)
    while position < len(text):
        if text[position] == "[":
            several = text.startswith("[[", position)
            keys, position = _keys(text, position + 1 + several)
            position += 1 + several
            table = _opened(root, keys, several=several)
        else:
            position = _pair(text, position, table)
        position = _match(_GAP, text, position)


def _pair(text: str, start: int, table: Node) -> int:
    """Read `key = value` into a table; return the position behind it."""
    keys, position = _keys(text, start)
    node = _node(text, _match(_SPACE, text, position + 1))
    for key in keys[:-1]:
        table = _entered(table, key)
    assert table.members is not None
    table.members.append(Member(keys[-1], start, node))
    return node.end


def _keys(text: str, position: int) -> tuple[list[str], int]:
    """Read a dotted key; return the position of what follows it."""
    keys: list[str] = []
    while True:
        position = _match(_SPACE, text, position)
        end = _string_end(text, position) if text[position] in "\"'" else _match(_BARE_KEY, text, position)
        quoted = text[position:end]
        keys.append(tomllib.loads(f"x = {quoted}")["x"] if quoted[:1] in {'"', "'"} else quoted)
        position = _match(_SPACE, text, end)
        if text[position] != ".":
            return keys, position
        position += 1


def _opened(root: Node, keys: list[str], *, several: bool) -> Node:
    """Return the table that a header opens."""
    table = root
    for key in keys[:-1]:
        table = _entered(table, key)
    if not several:
        return _entered(table, keys[-1])
    found = table.get(keys[-1])
    if found is None:
        found = Node(items=[], on_lines=True)
        assert table.members is not None
        table.members.append(Member(keys[-1], -1, found))
    assert found.items is not None
    found.items.append(Node(members=[], on_lines=True))
    return found.items[-1]


def _entered(table: Node, key: str) -> Node:
    found = table.get(key)
    if found is None:
        found = Node(members=[], on_lines=True)
        assert table.members is not None
        table.members.append(Member(key, -1, found))
    return found.items[-1] if found.items else found


def _node(text: str, start: int) -> Node:
    if text[start] == "[":
        return _array(text, start)
    if text[start] == "{":
        return _inline_table(text, start)
    end = _string_end(text, start) if text[start] in "\"'" else _match(_SCALAR, text, start)
    return Node(start, end, tomllib.loads(f"x = {text[start:end]}")["x"])


def _array(text: str, start: int) -> Node:
    items: list[Node] = []
    position = _match(_GAP, text, start + 1)
    while text[position] != "]":
        items.append(_node(text, position))
        position = _match(_GAP, text, items[-1].end)
        if text[position] == ",":
            position = _match(_GAP, text, position + 1)
    return Node(start, position + 1, items=items)


def _inline_table(text: str, start: int) -> Node:
    table = Node(start, members=[])
    position = _match(_GAP, text, start + 1)
    while text[position] != "}":
        position = _match(_GAP, text, _pair(text, position, table))
        if text[position] == ",":
            position = _match(_GAP, text, position + 1)
    table.end = position + 1
    return table


def _string_end(text: str, start: int) -> int:
    for pattern in _STRINGS:
        if (found := pattern.match(text, start)) is not None:
            return found.end()
    raise ValueError(f"no end of the string at character {start}")


def _match(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    if found is None:
        raise ValueError(f"character {position} is not expected")
    return found.end()


def _data(node: Node) -> Any:
    if node.members is not None:
        return {member.key: _data(member.node) for member in node.members}
    if node.items is not None:
        return [_data(item) for item in node.items]
    return node.value
