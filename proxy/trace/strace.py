"""Reads what strace writes with `-f -ttt -y -o FILE`: one line, one value. Pure, and never raises.

A traced program chooses file names, arguments and data, so it chooses most of a line. What it chooses is in quotes or
in `<…>`, where strace escapes the delimiters: a line is read from its front, past those, and never searched for what
looks like an end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# Unfinished calls that are remembered, one per thread.
MAX_PENDING = 1 << 16


class Syscall(NamedTuple):
    """One system call that returned, or never will (`value` is None)."""

    pid: int
    time: float  # when it began
    name: str
    arguments: str  # as printed
    value: int | None
    rest: str  # what follows the returned value, as printed
    until: float  # when it returned, where strace printed both times
    line: str

    @property
    def error(self) -> str | None:
        found = _ERROR.match(self.rest)
        return found[1] if found else None

    @property
    def ok(self) -> bool:
        return self.value is not None and not (self.value < 0 and _ERROR.match(self.rest))

    @property
    def injected(self) -> bool:
        """Whether strace made the result up, in the kernel's place."""
        return self.rest.endswith("(INJECTED)")

    @property
    def returned(self) -> str | None:
        """What the returned descriptor refers to, as printed: a path with links resolved, or an inode."""
        found = _RETURNED.match(self.rest)
        return found[1] if found else None


class Unfinished(NamedTuple):
    """A system call that began, and during which another thread did something. It comes again as a Syscall."""

    pid: int
    time: float
    name: str
    arguments: str
    line: str


class Resumed(NamedTuple):
    pid: int
    time: float
    name: str
    arguments: str
    value: int | None
    rest: str
    line: str


class Ended(NamedTuple):
    """A thread that ended: its exit code, or the signal that killed it."""

    pid: int
    time: float
    code: int | None
    signal: str | None
    line: str


class Superseded(NamedTuple):
    """A thread, `by`, that executed a program: it continues under the number of its process."""

    pid: int
    time: float
    by: int
    line: str


class Signal(NamedTuple):
    pid: int
    time: float
    text: str
    line: str


class Unparsed(NamedTuple):
    """A line that is none of those; TraceReader counts it."""

    line: str


type Line = Syscall | Unfinished | Resumed | Ended | Superseded | Signal | Unparsed
type Event = Syscall | Unfinished | Ended | Superseded | Signal | Unparsed

# A call's arguments. `<` begins a descriptor's path, a shift, or strace's own mark of an unfinished call.
_ARGUMENTS = r'(?:[^"<)]++|"(?:[^"\\]++|\\.)*+"|<<|<(?!unfinished \.\.\.>)[^<>]*+>|\)(?! += ))*+'
_HEAD = r"([0-9]{1,10}) +([0-9]{1,12}\.[0-9]{1,9}) "
_RESULT = r"\) += (-?[0-9]{1,20}|0x[0-9a-f]{1,16}|\?)(|[ <].*)"
_CALL = re.compile(rf"{_HEAD}(\w+)\(({_ARGUMENTS}){_RESULT}", re.DOTALL)
_UNFINISHED = re.compile(rf"{_HEAD}(\w+)\(({_ARGUMENTS})<unfinished \.\.\.>(?:\) += \?)?", re.DOTALL)
_RESUMED = re.compile(rf"{_HEAD}<\.\.\. (\w+) resumed>({_ARGUMENTS}){_RESULT}", re.DOTALL)
_LOST = re.compile(rf"{_HEAD}<\.\.\. (\w+) resumed>({_ARGUMENTS})<unfinished \.\.\.>\) += \?", re.DOTALL)
_EXITED = re.compile(rf"{_HEAD}\+\+\+ exited with ([0-9]{{1,5}}) \+\+\+")
_KILLED = re.compile(rf"{_HEAD}\+\+\+ killed by (\w+)(?: \(core dumped\))? \+\+\+")
_SUPERSEDED = re.compile(rf"{_HEAD}\+\+\+ superseded by execve in pid ([0-9]{{1,10}}) \+\+\+")
_SIGNAL = re.compile(rf"{_HEAD}--- (.*) ---", re.DOTALL)
_ERROR = re.compile(r" (E[A-Z][A-Z0-9]*)(?= |$)")
_RETURNED = re.compile(r"(<[^<>]*+>(?:\(deleted\))?)")

# The end of a line in which nothing is quoted or open: what precedes it cannot be part of a name or of data.
_plain_end = re.compile(
    r'(-?[0-9]{1,20}|0x[0-9a-f]{1,16}|\?)((?:<[^<>"]*+>(?:\(deleted\))?)?(?: E[A-Z0-9]+)?(?: \([^<>()"]*+\))*+)'
).fullmatch
_plain_head = re.compile(rf"{_HEAD}(\w+)\(").match
_plain_again = re.compile(rf"{_HEAD}<\.\.\. (\w+) resumed>").match
_make = Syscall._make
_OPEN_END = "<unfinished ...>"
_wake = re.compile(
    r'[0-9]{1,10} +[0-9]{1,12}\.[0-9]{1,9} write\([0-9]{1,10}<anon_inode:\[eventfd\]>, "(?:[^"\\]|\\.)*+", 8\) = 8'
).fullmatch


def is_wake(line: str) -> bool:
    """Return whether a line is a whole write to an eventfd and nothing else: Node's threads wake each other so.

    It reaches nobody outside, and needs no closer look. Of a call that reads files four lines of five are such.
    """
    return "<anon_inode:[eventfd]>" in line and _wake(line) is not None


def parse_line(line: str) -> Line:
    """Read one line, given without its newline."""
    return _parse_plain(line) or _parse_any(line)


def _parse_plain(line: str) -> Syscall | Unfinished | Resumed | None:
    """Read a line that has only one possible end of its call, ten times faster; None for any other line."""
    # Two such marks, or a byte that strace would have escaped, and a file name may imitate a result.
    parts = line.split(") = ")
    if len(parts) != 2 or not line.isascii():
        return _parse_plain_begin(line) if len(parts) == 1 else None
    head, end = parts
    begun = _plain_head(head)
    again = None if begun else _plain_again(head)
    begun = begun or again
    if begun is None:
        return None
    rest = ""
    if not end.isdigit():
        ended = _plain_end(end)
        if ended is None or end[0] == "?":
            return None
        end, rest = ended.groups()
    pid, time, name = begun.groups()
    began = float(time)
    if again:
        return Resumed(int(pid), began, name, head[begun.end() :], _number(end), rest, line)
    return _make((int(pid), began, name, head[begun.end() :], _number(end), rest, began, line))


def _parse_plain_begin(line: str) -> Unfinished | None:
    """Read the beginning of a call in which nothing is escaped and every quote is closed."""
    begun = _plain_head(line) if line.endswith(_OPEN_END) and "\\" not in line and line.isascii() else None
    if begun is None or line.count('"') % 2 or line.count("<") != line.count(">"):
        return None
    pid, time, name = begun.groups()
    arguments = line[begun.end() : -len(_OPEN_END)].removesuffix(" ")
    return Unfinished(int(pid), float(time), name, arguments, line)


def _parse_any(line: str) -> Line:
    """Read a line of any form; no line has two."""
    if line.endswith(_OPEN_END):
        return _parse_unfinished(line) or Unparsed(line)
    if found := _CALL.fullmatch(line):
        pid, time, name, arguments, value, rest = found.groups()
        began = float(time)
        return Syscall(int(pid), began, name, arguments, _number(value), rest, began, line)
    if found := _RESUMED.fullmatch(line):
        pid, time, name, arguments, value, rest = found.groups()
        return Resumed(int(pid), float(time), name, arguments, _number(value), rest, line)
    if found := _LOST.fullmatch(line):
        return Resumed(int(found[1]), float(found[2]), found[3], found[4].removesuffix(" "), None, "", line)
    if unfinished := _parse_unfinished(line):
        return unfinished
    if found := _EXITED.fullmatch(line):
        return Ended(int(found[1]), float(found[2]), int(found[3]), None, line)
    if found := _KILLED.fullmatch(line):
        return Ended(int(found[1]), float(found[2]), None, found[3], line)
    if found := _SUPERSEDED.fullmatch(line):
        return Superseded(int(found[1]), float(found[2]), int(found[3]), line)
    if found := _SIGNAL.fullmatch(line):
        return Signal(int(found[1]), float(found[2]), found[3], line)
    return Unparsed(line)


def _parse_unfinished(line: str) -> Syscall | Unfinished | None:
    found = _UNFINISHED.fullmatch(line)
    if found is None:
        return None
    pid, time, name, arguments = found.groups()
    arguments = arguments.removesuffix(" ")
    if line.endswith("?"):  # the thread was gone before the call could return
        return Syscall(int(pid), float(time), name, arguments, None, "", float(time), line)
    return Unfinished(int(pid), float(time), name, arguments, line)


def _number(text: str) -> int | None:
    if text == "?":
        return None
    return int(text, 16) if text.startswith("0x") else int(text)


class TraceReader:
    """Reads the lines of one trace in order, a value for each, and joins calls that strace printed in two parts."""

    def __init__(self) -> None:
        self.lines = 0
        self.unparsed = 0  # lines that could not be read, or whose first part is missing
        self._pending: dict[int, Unfinished] = {}

    def take(self, line: str) -> Event:
        self.lines += 1
        parsed = parse_line(line)
        if type(parsed) is Syscall:
            return parsed
        event = self._join(parsed)
        if type(event) is Unparsed:
            self.unparsed += 1
        return event

    def _join(self, parsed: Line) -> Event:
        pending = self._pending
        match parsed:
            case Unfinished():
                pending.pop(parsed.pid, None)
                pending[parsed.pid] = parsed
                if len(pending) > MAX_PENDING:
                    del pending[next(iter(pending))]
            case Resumed(pid, until, name, arguments, value, rest, end):
                begun = pending.pop(pid, None)
                if begun is None or begun.name != name:
                    return Unparsed(end)
                line = begun.line.removesuffix(_OPEN_END).removesuffix(" ") + end.partition(" resumed>")[2]
                return Syscall(pid, begun.time, name, begun.arguments + arguments, value, rest, until, line)
            case Ended():
                pending.pop(parsed.pid, None)
            case Superseded():
                pending.pop(parsed.pid, None)
                if parsed.by in pending:
                    pending[parsed.pid] = pending.pop(parsed.by)
            case _:
                pass
        return parsed
