"""Messages without brackets around them: HJSON's members at the top, and YAML's block mappings. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from proxy.wire.lenient_names import key_names
from proxy.wire.lenient_shape import MERGE, Member, Node, Quoted, TooLongError, Word, is_message

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINES: Final = 50_000
MAX_TOKENS: Final = 1 << 17
# Members beside the method, one of which a message has.
COMPANIONS: Final = frozenset(("jsonrpc", "params", "id"))
_KEY: Final = (
    r"""(?:"(?P<double>(?:[^"\\\r\n]|\\.)*+)"|'(?P<single>(?:[^'\r\n]|'')*+)'"""
    r"""|(?P<plain>[^\s"'{}\[\],:#][^\r\n:{}]{0,199}?))"""
)
_BEGINS = re.compile(rf"\?[ \t]|(?:-[ \t]++|[!&]\S*+[ \t]++)*+{_KEY}[ \t]*+:(?!//)")
_LINE = re.compile(
    r"(?P<indent>[ \t]*+(?:-[ \t]++)*+)(?:[!&]\S*+[ \t]++)*+"
    rf"{_KEY}[ \t]*+:(?P<value>[^\r\n]*+)"
)
_ANY_LINE = re.compile(r"(?P<indent>[ \t]*+)(?P<rest>[^\r\n]*+)(?:\r\n|\r|\n)?+")
# What may stand between the members of a mapping: nothing, comments, items, brackets' ends, marks of a document.
_YAML_REST = re.compile(r"\Z|#|-(?:\s|\Z)|---|\.\.\.|%|[\]})]")
# Tags and anchors, before a key or a value.
_DECORATION = re.compile(r"(?:^|(?<=[\s\[{,]))[!&][^\s\[\]{},]*+[ \t]*+", re.MULTILINE)
_TAGS = re.compile(r"(?:\s++|#[^\r\n]*+|[!&]\S*+)*+")
_QUOTED = re.compile(r"""\"(?:[^\"\\]|\\.)*+\"|'(?:[^']|'')*+'""", re.DOTALL)
# `? key` on one line and `: value` on the next.
_EXPLICIT = re.compile(r"(?:^|(?<=[\r\n]))((?:[ \t]|-[ \t])*+)\?[ \t]++([^\r\n]*+)\s*+:")
_MARK = re.compile(r"(?:[!&]\S*+[ \t]*+)*+[|>][-+0-9]*+[ \t]*+(?:#[^\r\n]*+)?")
_COMMENT = re.compile(
    r"(?:\s++|!!map\b|#[^\r\n]*+|//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+|,|---|\.\.\.|%[^\r\n]*+)*+"
)
_FLOW = re.compile(
    r"""[{}\[\]]|\#[^\r\n]*+|"(?:[^"\\]|\\.)*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s{}\[\],"'\#][^\s{}\[\],]*+|.""", re.DOTALL
)


def undecorated(text: str) -> Iterator[str]:
    """Return `text`, and what is left of it without what may be YAML's tags and anchors."""
    yield text
    if "!" in text or "&" in text:
        yield _DECORATION.sub("", text)


def begins_as_block(text: str) -> bool:
    """Return whether the first line with anything in it is a member: a key and a colon."""
    start = _COMMENT.match(text).end()  # type: ignore[union-attr]  # matches anything
    return _BEGINS.match(text, start) is not None


def find_in_yaml(text: str) -> Node | None:
    """Return the message that `text` is to YAML; None where it is none."""
    node = Node(is_list=False)
    node.members = _yaml_members(text)
    return node if is_block_message(node.members) else None


def is_block_message(members: list[Member]) -> bool:
    """Return whether members without brackets make a message: by a method, and a second member of one."""
    names = {name for key, _ in members if key is not None for name in key_names(key, raw=True)}
    return (bool(names & COMPANIONS) or MERGE in names) and is_message(members)


def _text_of(found: re.Match[str]) -> Any:
    for name in ("triple", "double", "single"):
        if name in found.re.groupindex and found[name] is not None:
            return Quoted(found[name])
    return Word((found["plain"] or "").strip())


def _past_brackets(text: str, start: int) -> int:
    depth = 0
    for count, token in enumerate(_FLOW.finditer(text, start)):
        if count > MAX_TOKENS:
            raise TooLongError
        depth += (token[0] in "{[") - (token[0] in "}]")
        if not depth:
            return token.end()
    return len(text)


def _yaml_members(text: str) -> list[Member]:
    """Return the members of the mapping that the text begins as, up to a line that fits in no mapping.

    Lines further right belong to the member before them, and so do brackets and quotes up to their end. Raises
    TooLongError.
    """
    text = _EXPLICIT.sub(r"\1\2:", text) if "?" in text else text
    position = _first_line(text)
    column, members = -1, list[Member]()
    for _ in range(MAX_LINES):
        if position >= len(text):
            return members
        line = _ANY_LINE.match(text, position)
        assert line is not None, "the pattern matches nothing at all, too"
        found = _LINE.match(text, position)
        indent = len(found["indent"]) if found else len(line["indent"])
        column = indent if column < 0 and found else column
        position = line.end()
        if found and indent == column:
            members.append((_text_of(found), [_yaml_value(text, found.end(), found["value"].strip())]))
            position = _past_value(text, found.start("value"), line.end(), column)
        elif not (indent > column >= 0 or _YAML_REST.match(line["rest"]) or ":" in line["rest"]):
            return members
    raise TooLongError


def _first_line(text: str) -> int:
    """Return where the first line with anything in it begins, or what stands on it behind a mark of a document."""
    first = _COMMENT.match(text).end()  # type: ignore[union-attr]  # matches anything
    return len(text[:first].rstrip(" \t"))


def _line_start(text: str, position: int) -> int:
    return max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1


def _past_value(text: str, start: int, line_end: int, column: int) -> int:
    """Return where the line ends on which a value ends: brackets and quotes may go over several."""
    begin = _TAGS.match(text, start).end()  # type: ignore[union-attr]  # matches anything
    if text[begin : begin + 1] in ("{", "["):
        end = _past_brackets(text, begin)
    else:
        quoted = _QUOTED.match(text, begin)
        # Further left, it is the next key.
        below = begin > line_end and begin - _line_start(text, begin) <= column
        end = quoted.end() if quoted and not below else start
    return line_end if end <= line_end else _ANY_LINE.match(text, end).end()  # type: ignore[union-attr]


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
