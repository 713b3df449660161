"""`command`: which programs would a command line run? Pure, no I/O.

Programs that run other programs (sudo, env, xargs, find -exec, sh -c …) are seen
through. Code handed to an interpreter is not read, but a program named in it
counts as one that may run.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.globs import compile_globs
from proxy.policy.rules import many
from proxy.policy.shell import MAX_DEPTH, Simple, Word, parse_script
from proxy.policy.text import fold, read_text
from proxy.policy.values import AMBIGUOUS, Trouble
from proxy.policy.views import WrongTypeError, gather
from proxy.policy.wrappers import (
    EXECUTING,
    INTERPRETERS,
    LOADING,
    LONG,
    LONG_WITH_VALUE,
    SCRIPT_OPTIONS,
    SHELL_VALUE_OPTIONS,
    SHELLS,
    SUFFIXES,
    WINDOWS_SHELLS,
    WRAPPERS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.policy.values import ArgPath, Reading


_OPENERS: Final = frozenset({"{", "!", "time", "then", "do"})


class Program(NamedTuple):
    """One program that would run, and its arguments."""

    name: str
    args: tuple[Word, ...]


class CommandView(NamedTuple):
    """What a command line would run: `run` surely, `maybe` by some reading."""

    run: tuple[Program, ...]
    maybe: tuple[Program, ...]
    mentioned: frozenset[str]
    problem: str | None


class _Finder:
    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.mentioned: set[str] = set()
        self.problem: str | None = None

    def script(self, text: str, depth: int) -> None:
        script = parse_script(text, depth)
        self.problem = self.problem or script.problem
        for simple in script.commands:
            self.simple(simple, depth)

    def simple(self, simple: Simple, depth: int) -> None:
        words = list(simple.words)
        while words and _is_assignment(words[0]):
            if words[0].text.startswith(LOADING):
                self.problem = f"a command that sets {words[0].text.partition('=')[0]}"
            words.pop(0)
        if words:
            self.run(words, simple, depth)

    def run(self, words: Sequence[Word], simple: Simple, depth: int) -> None:
        """Take `words` as a program and its arguments, and see through it."""
        head, args = words[0], tuple(words[1:])
        if depth > MAX_DEPTH:
            self.problem = "a command too deeply nested"
            return
        if head.text in _OPENERS and args:
            self.run(args, simple, depth + 1)
            return
        if head.dynamic or "{}" in head.text:
            self.problem = "a program whose name is worked out when it runs"
        name = program_name(head.text)
        self.programs.append(Program(name, args))
        self._mentions(name, args)
        if name in SHELLS:
            self._shell(args, simple, depth)
        elif name in WINDOWS_SHELLS:
            self._windows_shell(args, depth)
        elif name in ("eval", "trap", "alias", "ssh"):
            self._joined(name, args, depth)
        elif name in ("find", "fd", "fdfind"):
            self._executing(args, simple, depth)
        if name in SCRIPT_OPTIONS:
            self._script_option(SCRIPT_OPTIONS[name], args, depth)
        if name in WRAPPERS:
            self._wrapped(name, args, simple, depth)

    def _shell(self, args: tuple[Word, ...], simple: Simple, depth: int) -> None:
        takes_script = False
        operands = list(args)
        while operands and operands[0].text.startswith(("-", "+")) and not operands[0].dynamic:
            option = operands.pop(0).text
            takes_script = takes_script or ("c" in option[1:] and not option.startswith("--"))
            if option in SHELL_VALUE_OPTIONS and operands:
                operands.pop(0)
        if takes_script and operands:
            self._dynamic(operands[0])
            self.script(operands[0].text, depth + 1)
        elif takes_script or (not operands and (simple.piped or not simple.fed)):
            self.problem = "a shell that is fed its commands"
        elif any(word.dynamic for word in operands[:1]):
            self.problem = "a shell script whose name is worked out when it runs"
        for text in simple.fed:
            self.script(text, depth + 1)

    def _windows_shell(self, args: tuple[Word, ...], depth: int) -> None:
        texts = [word.text for word in args]
        for i, text in enumerate(texts):
            lowered = text.lower()
            if lowered.startswith(("-e", "/e")) and "-encodedcommand".startswith("-" + lowered[1:]):
                self.problem = "an encoded command"
            if lowered in ("/c", "/k", "-c", "-command", "/command") and i + 1 < len(texts):
                self.script(" ".join(texts[i + 1 :]), depth + 1)

    def _joined(self, name: str, args: tuple[Word, ...], depth: int) -> None:
        for word in args:
            self._dynamic(word)
        texts = [word.text for word in args if not word.text.startswith("-")]
        if name == "alias":
            texts = [text.partition("=")[2] for text in texts]
        elif name == "trap":
            texts = texts[:1]
        elif name == "ssh":
            texts = texts[1:]
        self.script(" ".join(texts), depth + 1)

    def _dynamic(self, word: Word) -> None:
        if word.dynamic:
            self.problem = "a script whose text is worked out when it runs"

    def _executing(self, args: tuple[Word, ...], simple: Simple, depth: int) -> None:
        for i, word in enumerate(args):
            if word.text in EXECUTING and i + 1 < len(args):
                rest = args[i + 1 :]
                end = next((j for j, w in enumerate(rest) if w.text in (";", "+")), len(rest))
                if rest[:end]:
                    self.run(rest[:end], simple, depth + 1)

    def _script_option(self, letter: str, args: tuple[Word, ...], depth: int) -> None:
        for i, word in enumerate(args):
            text = word.text
            long = {"c": "--command", "S": "--split-string"}[letter]
            if text.startswith((long + "=", f"-{letter}")) and text not in (f"-{letter}", long):
                self._dynamic(word)
                self.script(text.partition("=")[2] if text.startswith("--") else text[2:], depth + 1)
            elif (
                text == long or (text.startswith("-") and text.endswith(letter) and text[1:2] != "-")
            ) and i + 1 < len(args):
                self._dynamic(args[i + 1])
                self.script(args[i + 1].text, depth + 1)

    def _wrapped(self, name: str, args: tuple[Word, ...], simple: Simple, depth: int) -> None:
        with_value, operands = WRAPPERS[name]
        rest = list(args)
        if name in ("xargs", "parallel"):
            simple = simple._replace(piped=True, fed=())
        while rest:
            text = rest[0].text
            if text == "--":
                rest.pop(0)
                rest = rest[operands:]
                break
            if text.startswith("-") and len(text) > 1:
                rest.pop(0)
                if _takes_value(text, with_value) and rest:
                    rest.pop(0)
            elif _is_assignment(rest[0]):
                self.simple(Simple((rest.pop(0),)), depth)
            elif operands:
                operands -= 1
                rest.pop(0)
            else:
                break
        if rest:
            self.run(rest, simple, depth + 1)
        elif name != "xargs" and simple.piped and not simple.fed and name == "parallel":
            self.problem = "a program that is fed its commands"

    def _mentions(self, name: str, args: tuple[Word, ...]) -> None:
        interprets = name.startswith(INTERPRETERS)
        for word in args:
            if interprets or any(mark in word.text for mark in ("exec=", "!", "ommand=", "system(")):
                self.mentioned.update(_mentioned(word.text))
                self.problem = self.problem or (
                    "code worked out when it runs" if interprets and _opaque(word) else None
                )


def _opaque(word: Word) -> bool:
    return word.dynamic and not word.text


def _mentioned(text: str) -> set[str]:
    cleaned = "".join(c if c.isalnum() or c in "_.+-/" else " " for c in text)
    return {program_name(part) for part in cleaned.split()}


def _takes_value(option: str, letters: str) -> bool:
    if option.startswith("--"):
        return "=" not in option and option in LONG_WITH_VALUE
    return option[-1] in letters and not any(letter in letters for letter in option[1:-1])


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.text.partition("=")
    name = name.removesuffix("+").partition("[")[0]
    return bool(equals) and name.isidentifier() and name.isascii()


def program_name(text: str) -> str:
    """Give the name a program is known by: no folder, no case, no Windows suffix."""
    name = fold(text.replace("\\", "/").rstrip("/").rpartition("/")[2])
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name or fold(text)


def view_command(value: Any) -> CommandView:
    """View a string as a shell command line, an array of strings as an argv."""
    if isinstance(value, str):
        return _view_text(value)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return _view_argv(value)
    raise WrongTypeError("a command line", value)


def _view_text(value: str) -> CommandView:
    sure = _find(value)
    readings = [_find(other) for other in read_text(value).readings[1:]]
    others: dict[str, None] = {}
    if "\\" in value:
        others[value.replace("\\", "/")] = None
    if "^" in value:
        others[value.replace("^", "")] = None
    finders = [_find(other) for other in others]
    return CommandView(
        tuple(program for finder in (sure, *readings) for program in finder.programs),
        tuple(program for finder in finders for program in finder.programs),
        frozenset(name for finder in (sure, *readings, *finders) for name in finder.mentioned),
        sure.problem,
    )


def _find(text: str) -> _Finder:
    finder = _Finder()
    finder.script(text, 0)
    return finder


def _view_argv(value: list[str]) -> CommandView:
    finder = _Finder()
    if value:
        finder.simple(Simple(tuple(Word(text) for text in value)), 0)
    loose = _Finder()
    for text in value:
        if any(c in text for c in " ;|&$`\n"):
            loose.script(text, 0)
    loose.script(" ".join(value), 0)
    mentioned = frozenset(finder.mentioned | loose.mentioned)
    return CommandView(tuple(finder.programs), tuple(loose.programs), mentioned, finder.problem)


class _Entry(NamedTuple):
    fits: Callable[[str], bool]
    words: tuple[str, ...]


def command(arg: ArgPath, operand: Any) -> Callable[[Reading], int]:
    """Compile `command`."""
    entries = [_entry(text) for text in many(operand)]
    views = gather(arg, "command", view_command)

    def test(reading: Reading) -> int:
        found = views(reading)
        may = False
        must = found.sure
        trouble = found.trouble
        for view in (*found.items, *found.extra):
            bits = _judge(view, entries)
            may = may or bits != 0
        for view in found.items:
            must = must and _judge(view, entries) == 3
            if view.problem:
                trouble = Trouble(AMBIGUOUS, view.problem)
        if trouble is not None:
            return int(may) | reading.give_up(trouble)
        return 3 if may and must else int(may)

    return test


def _entry(text: str) -> _Entry:
    words = shlex.split(text)
    return _Entry(compile_globs([words[0].casefold()]), tuple(words[1:]))


def _judge(view: CommandView, entries: list[_Entry]) -> int:
    runs = [any(_matches(entry, program, sure=True) for entry in entries) for program in view.run]
    if runs and all(runs) and view.problem is None:
        return 3
    if any(runs) or any(_matches(e, p, sure=False) for e in entries for p in (*view.run, *view.maybe)):
        return 1
    return int(any(entry.fits(name) for entry in entries for name in view.mentioned))


def _matches(entry: _Entry, program: Program, *, sure: bool) -> bool:
    if not entry.fits(program.name):
        return False
    if not sure and any(word.dynamic for word in program.args):
        return True
    return all(_has_word(wanted, program.args) for wanted in entry.words)


def _has_word(wanted: str, args: tuple[Word, ...]) -> bool:
    texts = [word.text for word in args]
    if wanted.startswith("--"):
        return any(_is_long(wanted, text) for text in texts)
    if wanted.startswith("-") and len(wanted) > 1:
        return all(_has_letter(letter, texts) for letter in wanted[1:])
    return compile_globs([wanted])(next((t for t in texts if t == wanted), "")) or any(
        map(compile_globs([wanted]), texts)
    )


def _is_long(wanted: str, text: str) -> bool:
    """Tell whether `text` is the option, with a value or shortened as getopt allows."""
    given = text.partition("=")[0]
    return given == wanted or (len(given) > 3 and given.startswith("--") and wanted.startswith(given))


def _has_letter(letter: str, texts: list[str]) -> bool:
    long = LONG.get(letter)
    return any(
        (text.startswith("-") and not text.startswith("--") and letter in text[1:])
        or (long is not None and _is_long(long, text))
        for text in texts
    )
