"""Expand the words of a command line as a shell would, as far as the line itself says. Pure, no I/O.

Variables that the line sets, `$HOME`, defaults (`${x:-/etc}`), cuts and replacements (`${x#a}`) and braces are
expanded. What only the machine knows becomes `UNKNOWN_TEXT`.
"""

from __future__ import annotations

import re
from fnmatch import translate
from itertools import islice, product
from typing import TYPE_CHECKING, Final

from proxy.policy.command_mentions import program_name
from proxy.policy.shell import parse_script
from proxy.policy.shell_words import Word, read_ansi_c

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.policy.shell_words import Piece

# A character that no honest text has: it stands for text that is known only when the command runs.
UNKNOWN_TEXT: Final = "\ue000"
# How many texts one word or variable may become; what exceeds them is unknown.
MAX_TEXTS: Final = 64
_MAX_NESTED: Final = 4
_MAX_VALUE: Final = 4096
_MAX_SLOTS: Final = 24
_MARKS: Final = "{},."
_QUOTE: Final = {ord(char): chr(0xE010 + i) for i, char in enumerate(_MARKS)}
_UNQUOTE: Final = {0xE010 + i: char for i, char in enumerate(_MARKS)}
_SLOT: Final = 0xE100
_PARAMETER: Final = re.compile(r"(!?)([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[[^\]]*\])?(.*)", re.DOTALL)
_OPERATOR: Final = re.compile(r":?[-=+?]|##?|%%?|//?|:|\^\^?|,,?")
# The slash between the pattern and what replaces it, which no backslash precedes.
_HALVES: Final = re.compile(r"(?<!\\)/")
_SEQUENCE: Final = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")

_CONVERSION: Final = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]|%%")

type Values = tuple[str, ...]


def expand_word(word: Word, variables: Mapping[str, Values], depth: int = 0) -> tuple[Word, ...]:
    """Return the words that `word` may become; unknown text is `UNKNOWN_TEXT`."""
    if not word.pieces:
        return (word,)
    if sum(piece.kind not in ("bare", "quoted") for piece in word.pieces) > _MAX_SLOTS:
        return (Word("".join(_plainly(piece) for piece in word.pieces), word.dynamic),)
    slots: list[Values] = []
    template: list[str] = []
    for piece in word.pieces:
        if piece.kind == "bare":
            template.append(piece.text)
        elif piece.kind == "quoted":
            template.append(piece.text.translate(_QUOTE))
        else:
            template.append(chr(_SLOT + len(slots)))
            slots.append(_values(piece, variables, depth))
    joined = "".join(template)
    if len(joined) > _MAX_VALUE:
        joined = joined.translate(dict.fromkeys(range(_SLOT, _SLOT + len(slots)), UNKNOWN_TEXT))
        return (Word(joined.translate(_UNQUOTE), word.dynamic),)
    texts = list(islice(_filled(expand_braces(joined), slots), MAX_TEXTS + 1))
    if len(texts) > MAX_TEXTS:
        texts = [UNKNOWN_TEXT, *texts[:MAX_TEXTS]]
    return tuple(Word(text, word.dynamic) for text in dict.fromkeys(texts))


def _plainly(piece: Piece) -> str:
    return piece.text if piece.kind in ("bare", "quoted") else UNKNOWN_TEXT


def _filled(templates: Iterator[str], slots: list[Values]) -> Iterator[str]:
    for template in templates:
        plain = template.translate(_UNQUOTE)
        for values in product(*slots):
            text = plain
            for i, value in enumerate(values):
                text = text.replace(chr(_SLOT + i), value)
            yield text


def _values(piece: Piece, variables: Mapping[str, Values], depth: int) -> Values:
    if depth > _MAX_NESTED or piece.kind == "process":
        return (UNKNOWN_TEXT,)
    if piece.kind == "unknown":
        return (_output(piece.text, variables, depth + 1),)
    match = _PARAMETER.fullmatch(piece.text)
    if match is None:
        return (UNKNOWN_TEXT,)
    indirect, name, rest = match.groups()
    values = variables.get(name, (UNKNOWN_TEXT,))
    if indirect:
        values = tuple(value for known in values for value in variables.get(known, (UNKNOWN_TEXT,)))
    operator = _OPERATOR.match(rest)
    if operator is None:
        return values if not rest else (UNKNOWN_TEXT,)
    raw = _HALVES.split(rest[operator.end() :], maxsplit=1) if operator[0][0] == "/" else [rest[operator.end() :]]
    operands = [_expand_text(text, variables, depth + 1) for text in raw]
    out = (text for value in values for text in _modified(value, operator[0], *operands))
    return tuple(dict.fromkeys(islice(out, MAX_TEXTS)))


def _output(script: str, variables: Mapping[str, Values], depth: int) -> str:
    """Return what a substitution puts in, where it only says a text: `$(echo /etc)`."""
    commands = parse_script(script).commands if script else ()
    if len(commands) != 1 or commands[0].redirects:
        return UNKNOWN_TEXT
    words = [found.text for word in commands[0].words for found in expand_word(word, variables, depth)]
    return spoken_text(words) or UNKNOWN_TEXT


def spoken_text(words: list[str]) -> str | None:
    """Return the text that `echo` or `printf` writes; None for another program."""
    name, args = program_name(words[0]) if words else "", words[1:]
    while args and name in ("echo", "printf") and args[0] in ("-e", "-n", "-E", "-ne", "-en", "--"):
        args = args[1:]
    if name == "echo":
        return _unescaped(" ".join(args))
    if name != "printf" or not args or args[0] == "-v":
        return None
    values = iter(args[1:])
    return _CONVERSION.sub(lambda match: "%" if match[0] == "%%" else next(values, ""), _unescaped(args[0])).strip()


def _unescaped(text: str) -> str:
    return read_ansi_c(text.replace("'", "\\'") + "'", 0)[0].strip() if "\\" in text else text


def _expand_text(text: str, variables: Mapping[str, Values], depth: int) -> str:
    """Return the operand of a parameter, with its own variables expanded to their first value."""
    if not any(mark in text for mark in "$`'\"\\"):
        return text
    words = [word for command in parse_script("x " + text).commands[-1:] for word in command.words[1:]]
    return " ".join(expand_word(word, variables, depth)[0].text for word in words)


def _modified(value: str, operator: str, operand: str, by: str = "") -> Values:
    """Return what a parameter with this value and this operator becomes."""
    if operator in (":-", "-", ":=", "=", ":?", "?"):
        return (value,) if operator.endswith("?") else (value, operand)
    if operator in (":+", "+"):
        return (operand, "")
    if UNKNOWN_TEXT in value + operand + by or value[:1] in ("~", "*") or len(value) > _MAX_VALUE:
        return (UNKNOWN_TEXT,)
    if operator[0] in "#%":
        return tuple(_cut(value, operator[0], operand))
    if operator[0] == "/":
        return (_replaced(value, operator, operand, by),)
    if operator == ":":
        return (_sliced(value, operand),)
    return (value.upper() if operator == "^^" else value.lower() if operator == ",," else value.swapcase(), value)


def _cut(value: str, side: str, pattern: str) -> Iterator[str]:
    """Return the value without each start or end that fits the pattern; unchanged where none does."""
    fits = re.compile(translate(pattern))
    yield value
    for i in range(min(len(value), MAX_TEXTS) + 1):
        removed = value[:i] if side == "#" else value[len(value) - i :]
        if fits.fullmatch(removed):
            yield value[i:] if side == "#" else value[: len(value) - i]


def _replaced(value: str, operator: str, pattern: str, by: str) -> str:
    if any(mark in pattern for mark in "*?["):
        return UNKNOWN_TEXT
    pattern = pattern.removeprefix("#").removeprefix("%") if operator == "/" else pattern
    return value.replace(pattern, by, -1 if operator == "//" else 1) if pattern else value


def _sliced(value: str, operand: str) -> str:
    try:
        start, _, length = (part.strip(" ()") for part in operand.partition(":"))
        cut = value[int(start or "0") :]
        return cut[: int(length)] if length else cut
    except ValueError:
        return UNKNOWN_TEXT


def expand_braces(text: str) -> Iterator[str]:
    """Return the texts that the braces of a text stand for: `/{etc,x}/y` is `/etc/y` and `/x/y`."""
    pending = [text]
    for _ in range(8 * MAX_TEXTS):
        if not pending:
            return
        current = pending.pop(0)
        parts = _first_braces(current)
        if parts is None:
            yield current
        else:
            pending.extend(parts)
    yield UNKNOWN_TEXT


def _first_braces(text: str) -> list[str] | None:
    """Return the texts with the first expandable braces replaced by each choice, or None where there are none."""
    start = text.find("{")
    while start >= 0:
        choices, end = _choices(text, start)
        if choices is not None:
            return [text[:start] + choice + text[end:] for choice in choices]
        start = text.find("{", start + 1)
    return None


def _choices(text: str, start: int) -> tuple[list[str] | None, int]:
    level = 0
    begin = start + 1
    choices: list[str] = []
    for at in range(start, len(text)):
        char = text[at]
        level += (char == "{") - (char == "}")
        if level == 1 and char == ",":
            choices.append(text[begin:at])
            begin = at + 1
        if not level:
            choices.append(text[begin:at])
            return (choices if len(choices) > 1 else _sequence(choices[0])), at + 1
    return None, len(text)


def _sequence(text: str) -> list[str] | None:
    match = _SEQUENCE.fullmatch(text)
    if match is None:
        return None
    first, last, step = match.groups()
    letters = first.isalpha() and last.isalpha()
    if not letters and (first.isalpha() or last.isalpha()):
        return None
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    by = max(abs(int(step or "1")), 1)
    numbers = range(low, high + 1, by) if low <= high else range(low, high - 1, -by)
    return [chr(n) if letters else str(n) for n in islice(numbers, MAX_TEXTS)]
