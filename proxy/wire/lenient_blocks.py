"""Messages without brackets around them: HJSON's members at the top, and YAML's block mappings. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.wire.lenient_names import key_names
from proxy.wire.lenient_shape import Node, Quoted, Word, is_message

if TYPE_CHECKING:
    from collections.abc import Iterator

# Members beside the method, one of which a message has.
COMPANIONS: Final = frozenset(("jsonrpc", "params", "id"))
_KEY: Final = (
    r"""(?:"(?P<double>(?:[^"\\\r\n]|\\.)*+)"|'(?P<single>[^'\r\n]*+)'"""
    r"""|(?P<plain>[^\s"'{}\[\],:#][^\r\n:"'{}]{0,199}?))"""
)
_BEGINS = re.compile(rf"\?[ \t]|(?:-[ \t]++|[!&]\S*+[ \t]++)*+{_KEY}[ \t]*+:(?!//)")
_LINE = re.compile(
    r"(?:^|(?<=[\r\n]))(?P<indent>[ \t]*+(?:-[ \t]++)*+)(?:[!&]\S*+[ \t]++)*+"
    rf"{_KEY}[ \t]*+:(?P<value>[^\r\n]*+)"
)
# `? key` on one line and `: value` on the next.
_EXPLICIT = re.compile(r"(?:^|(?<=[\r\n]))((?:[ \t]|-[ \t])*+)\?([ \t]++[^\r\n]*+)[\r\n\s]*+:")
_MARK = re.compile(r"(?:[!&]\S*+[ \t]*+)*+[|>][-+0-9]*+[ \t]*+(?:#[^\r\n]*+)?")
_COMMENT = re.compile(
    r"(?:\s++|!!map\b|#[^\r\n]*+|//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+|,|---|\.\.\.|%[^\r\n]*+)*+"
)
_HJSON_KEY = re.compile(
    r"""(?:"(?P<double>(?:[^"\\]|\\.)*+)"|'(?P<single>(?:[^'\\]|\\.)*+)'|(?P<plain>[^\s"'{}\[\],:]++))\s*+:"""
)
_HJSON_VALUE = re.compile(
    r"""'''(?P<triple>(?:[^']|'(?!''))*+)'''|"(?P<double>(?:[^"\\]|\\.)*+)"|'(?P<single>(?:[^'\\]|\\.)*+)'"""
    r"""|(?P<plain>[^\r\n]*+)"""
)
_BRACKETS = re.compile(r"""[{}\[\]]|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[^{}\[\]"']++|.""", re.DOTALL)


def begins_as_block(text: str, begin: int) -> bool:
    """Return whether the first line with anything in it is a member: a key and a colon."""
    start = _COMMENT.match(text, begin).end()  # type: ignore[union-attr]  # matches anything
    return _BEGINS.match(text, start) is not None


def find_in_blocks(text: str, begin: int) -> Node | None:
    """Return the message that `text` is to HJSON or YAML; None where it is none."""
    for members in (_hjson_members(text, begin), *_yaml_mappings(text, begin)):
        node = Node(is_list=False)
        node.members = list(members)
        names = {name for key, _ in node.members if key is not None for name in key_names(key, raw=True)}
        if names & COMPANIONS and is_message(node.members):
            return node
    return None


def _text_of(found: re.Match[str]) -> Any:
    for name in ("triple", "double", "single"):
        if name in found.re.groupindex and found[name] is not None:
            return Quoted(found[name])
    return Word((found["plain"] or "").strip())


def _hjson_members(text: str, begin: int) -> Iterator[tuple[str, list[Any]]]:
    """Return the members as far as they can be read."""
    position = begin
    while True:
        position = _COMMENT.match(text, position).end()  # type: ignore[union-attr]  # matches anything
        key = _HJSON_KEY.match(text, position)
        if key is None:
            return
        position = _COMMENT.match(text, key.end()).end()  # type: ignore[union-attr]
        if text[position : position + 1] in ("{", "["):
            position, values = _past_brackets(text, position), [Node(is_list=text[position] == "[")]
        else:
            value = _HJSON_VALUE.match(text, position)
            assert value is not None, "the pattern matches nothing at all, too"
            position, values = value.end(), [_text_of(value)]
        yield _text_of(key), values


def _past_brackets(text: str, start: int) -> int:
    depth = 0
    for token in _BRACKETS.finditer(text, start):
        depth += (token[0] in "{[") - (token[0] in "}]")
        if not depth:
            return token.end()
    return len(text)


def _yaml_mappings(text: str, begin: int) -> list[list[tuple[str, list[Any]]]]:
    """Return the members of each column in which a mapping at the top may stand: the first key's."""
    text = _EXPLICIT.sub(r"\1 \2:", text) if "?" in text else text
    first = _COMMENT.match(text, begin).end()  # type: ignore[union-attr]  # matches anything
    line_start = max(text.rfind("\n", 0, first), text.rfind("\r", 0, first)) + 1
    head = _LINE.match(text, line_start)
    if head is None:
        return []
    column, members = len(head["indent"]), list[tuple[str, list[Any]]]()
    for found in _LINE.finditer(text, line_start):
        if len(found["indent"]) == column:
            members.append((_text_of(found), [_yaml_value(text, found.end(), found["value"].strip())]))
    return [members]


def _yaml_value(text: str, end: int, value: str) -> Any:
    """Return the scalar of a member; it may begin on the line below."""
    if not value or value.startswith("#") or _MARK.fullmatch(value):
        below = re.compile(r"\s*+([^\r\n]*+)").match(text, end)
        value = below[1].strip() if below else ""
    value = re.sub(r"\A(?:[!&]\S*+[ \t]++)++", "", value)
    value = re.sub(r"[ \t]#.*", "", value).strip() if not value.startswith(('"', "'")) else value
    if value[:1] in ("{", "["):
        return Node(is_list=value[0] == "[")
    quoted = re.fullmatch(r"""(["'])(.*)\1[ \t]*(?:#.*)?""", value)
    return Quoted(quoted[2]) if quoted else Word(value)
