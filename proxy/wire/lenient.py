r"""The most lenient reading there is, by which a text is no call only if no parser that a server uses finds one.

Pure. The strict reader decides on calls; this one decides what may pass as no call at all. It does not list
spellings. It reads a text as the laxest parsers do and asks whether a message could come out.

Parsers contradict each other: what is a comment to Gson is a word to kotlinx, and `\'` ends a string in YAML but not
in JSON5. So a text is read in each `Dialect` that makes a difference for it.

Structure decides, not words: a message must be readable from the start of the text. Source code that holds a call
somewhere inside is no message to any parser.
"""

from __future__ import annotations

import functools
import re
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.wire.lenient_blocks import begins_as_block, find_in_yaml, is_block_message, undecorated
from proxy.wire.lenient_names import has_call_words, views
from proxy.wire.lenient_shape import Node, Quoted, TooLongError, Word, find_message

if TYPE_CHECKING:
    from collections.abc import Iterator

# What all dialects together may read of one text, in characters; past that, its words alone decide.
MAX_READ: Final = 1 << 20
# What a token costs beside its characters.
TOKEN: Final = 8
# A JSON text in a JSON string, in a string again.
MAX_STRINGS: Final = 3
_BLANK: Final = r"\s\x00-\x20\x7f\x85\xa0\xad\u180e\u200b-\u200f\u2028\u2029\u2060-\u2064\ufeff"
# What parsers skip before a message: Gson's guard against scripts, and YAML's marks of a document.
_BEFORE = re.compile(rf"(?:[{_BLANK}]++|[)\]}}]++'?+,?+|---(?=[{_BLANK}])|%[^\r\n]*+)*+")
_SCALAR = re.compile(
    r"[-+]?(?:[0-9.][0-9a-zA-Z.+_-]*|infinity|inf)|true|false|null|nan|undefined|nil|none"
    # YAML's items, keys, tags and anchors
    r"|-|\?|[!&].*+",
    re.IGNORECASE,
)
_AFTER = re.compile(rf"(?:[{_BLANK}]++|//.*+|\#.*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+)*+")
_QUOTE_IN_WORD = re.compile(rf"[^{_BLANK}{{}}\[\],;:='\"`]['\"`]")
_LINE = re.compile(r"[^\r\n]*+")


class Dialect(NamedTuple):
    """One way to cut text into tokens. Each field is a choice in which parsers differ."""

    single: bool  # '…' is a string
    raw_single: bool  # a backslash in '…' is a character like any other
    triple: bool  # three quotes begin a string that three quotes end
    backtick: bool  # `…` is a string
    hash: int  # "#" begins a comment: 0 never, 1 where a token may begin, 2 in words, too
    slashes: int  # the same of "//" and "/*"
    to_line_end: bool  # a value without quotes goes to the end of its line (HJSON)
    quotes_in_words: bool  # a quote inside a word is part of it


_HJSON = Dialect(True, False, True, False, 1, 1, True, True)


def find_call(text: str, *, whole: bool = False) -> Any | None:
    """Return the message that some parser finds at the start of `text`; None where none does.

    `whole` where nothing but comments may stand behind it. Raises TooLongError where `text` has words of MCP's and
    cannot be read in every dialect.
    """
    return _find(text, MAX_STRINGS, _Budget(MAX_READ), whole=whole) if has_call_words(text) else None


class _Budget:
    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, read: int) -> None:
        self._left -= read
        if self._left < 0:
            raise TooLongError


def _find(text: str, depth: int, budget: _Budget, *, whole: bool = False) -> Any | None:
    begin = _BEFORE.match(text).end()  # type: ignore[union-attr]  # matches anything
    for dialect in _dialects(text):
        for value, end in _values(text, begin, dialect, budget):
            found = find_message(value) if isinstance(value, Node) else _find_inside(value, depth, budget)
            if found is not None and (not whole or (end is not None and _AFTER.fullmatch(text, end))):
                return found
    return None if whole else _find_in_blocks(text, begin, budget)


def _find_in_blocks(text: str, begin: int, budget: _Budget) -> Node | None:
    for each in undecorated(text[begin:]):
        if begins_as_block(each) and (found := _find_in_hjson(each, budget) or find_in_yaml(each)) is not None:
            return found
    return None


def _find_in_hjson(text: str, budget: _Budget) -> Node | None:
    """Return the message that `text` is to HJSON, which needs no brackets around it; None where it is none."""
    for value, end in _values(f"{{{text}\n}}", 0, _HJSON, budget):
        # Brackets that close too early are none of HJSON's; nor is a member without a key.
        if not isinstance(value, Node) or end != len(text) + 3 or any(key is None for key, _ in value.members):
            return None
        # Merges and aliases are YAML's, which reads them at the level where they stand.
        members = [(key, values) for key, values in value.members if not str(key).startswith(("<<", "*"))]
        return value if is_block_message(members) else None
    return None


def _find_inside(text: str, depth: int, budget: _Budget) -> Any | None:
    if not depth:
        raise TooLongError
    for view in set(views(text)):
        if (found := _find(view, depth - 1, budget)) is not None:
            return found
    return None


def _dialects(text: str) -> Iterator[Dialect]:
    either = (True, False)
    return map(
        Dialect._make,
        product(
            either if "'" in text else (True,),
            either if "\\'" in text else (False,),
            either if "'''" in text or '"""' in text else (False,),
            either if "`" in text else (False,),
            (0, 1, 2) if "#" in text else (0,),
            (0, 1, 2) if "//" in text or "/*" in text else (0,),
            (False, True) if "\n" in text or "\r" in text else (False,),
            (False, True) if _QUOTE_IN_WORD.search(text) else (False,),
        ),
    )


@functools.lru_cache(maxsize=512)
def _token(dialect: Dialect) -> re.Pattern[str]:
    """Return the pattern of one token, whose groups are its kinds. Possessive: no text is gone through twice."""
    comments = [rf"[{_BLANK}]++"]
    comments += [r"//[^\r\n]*+", r"/\*(?:[^*]|\*(?!/))*+(?:\*/)?+"] if dialect.slashes else []
    comments += [r"\#[^\r\n]*+"] if dialect.hash else []
    strings = [r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)']
    if dialect.single:
        strings.append(r"'[^']*+(?:'|\Z)" if dialect.raw_single else r"'(?:[^'\\]|\\.)*+(?:'|\\?\Z)")
    if dialect.backtick:
        strings.append(r"`(?:[^`\\]|\\.)*+(?:`|\\?\Z)")
    triples = [r"'''(?:[^']|'(?!''))*+(?:''')?+", r'"""(?:[^"]|"(?!""))*+(?:""")?+'] if dialect.triple else []
    quotes = '"' + "'" * dialect.single + "`" * dialect.backtick
    outside = rf"{_BLANK}{{}}\[\],;:=" + ("" if dialect.quotes_in_words else quotes)
    # A word ends where a comment may begin in it.
    ends = (r"\#" if dialect.hash == 2 else "", r"(?!//|/\*)" if dialect.slashes == 2 else "")
    word = rf"(?:{ends[1]}[^{outside}{ends[0]}])++"
    kinds = {
        "skip": comments,
        "triple": triples or ["(?!)"],
        "string": strings,
        "mark": ["=>", r"[{}\[\],;:=]"],
        "word": [word, "."],
    }
    return re.compile("|".join(f"(?P<{kind}>{'|'.join(ways)})" for kind, ways in kinds.items()), re.DOTALL)


def _values(text: str, begin: int, dialect: Dialect, budget: _Budget) -> Iterator[tuple[Node | str, int | None]]:
    """Return the values that stand one after the other from `begin` on, each with its end.

    Nothing else may be between them. A value without its last bracket has no end.
    """
    token, stack, position = _token(dialect), list[Node](), begin
    while position < len(text):
        found = token.match(text, position)
        assert found is not None, "any one character is a token"
        budget.spend(found.end() - position + TOKEN)
        kind, written, position = found.lastgroup, found[0], found.end()
        if kind == "skip":
            continue
        if not stack and not _may_stand_alone(kind, written):
            return
        if kind == "mark":
            if (closed := _take_mark(stack, written)) is not None:
                yield closed, position
        elif kind == "word":
            position = _take_word(text, found, stack, to_line_end=dialect.to_line_end)
        elif stack:
            stack[-1].add(Quoted(_inside(kind, written)))
        else:
            yield _inside(kind, written), position
    # The end is missing: some parsers do without, but HJSON's.
    while stack and not dialect.to_line_end:
        if (closed := _take_mark(stack, "}")) is not None:
            yield closed, None


def _may_stand_alone(kind: str | None, written: str) -> bool:
    """Return whether a token may stand outside of all brackets: no parser reads on behind other words."""
    if kind == "mark":
        return written in "{[,;]}"
    return kind != "word" or _SCALAR.fullmatch(written) is not None


def _take_word(text: str, found: re.Match[str], stack: list[Node], *, to_line_end: bool) -> int:
    """Take a word without quotes, which is a whole line to HJSON; return where it ends."""
    if not stack:
        return found.end()
    node = stack[-1]
    if not (to_line_end and node.wants_value):
        node.add(Word(found[0]))
        return found.end()
    line = _LINE.match(text, found.start())
    assert line is not None, "the pattern matches nothing at all, too"
    node.add(Word(line[0].strip()))
    node.end_member()
    return line.end()


def _inside(kind: str | None, written: str) -> str:
    size = 3 if kind == "triple" else 1
    closed = len(written) >= 2 * size and written.endswith(written[:size])
    return written[size:-size] if closed else written[size:]


def _take_mark(stack: list[Node], mark: str) -> Node | None:
    """Take a bracket or a separator; return the value that it ends, where it ends one that is in no other."""
    if mark in "{[":
        stack.append(Node(is_list=mark == "["))
    elif not stack:
        return None
    elif mark in "}]":
        node = stack.pop()
        node.end_member()
        if not stack:
            return node
        stack[-1].add(node)
    elif mark in ",;":
        stack[-1].end_member()
    else:
        stack[-1].separate()
    return None
