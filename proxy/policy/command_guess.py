"""Guess which programs others start: from words that no table knows, code, and text that a line says. Pure, no I/O."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.policy import wrappers
from proxy.policy.command_mentions import (
    is_script,
    leading_names,
    may_hold_program,
    names_in,
    program_name,
    scripts_in,
    starts_programs,
)
from proxy.policy.shell import MAX_COMMANDS, MAX_DEPTH, MAX_SCRIPT, MAX_WORDS, parse_substitutions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.policy.shell import SimpleCommand
    from proxy.policy.shell_words import Word

STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
TOO_DEEP: Final = "a command too deeply nested"
TOO_MANY: Final = "more commands than can be judged"
LATE_SCRIPT: Final = "a script whose text is known only when it runs"
IS_FED: Final = "a program that reads its commands from standard input"
_IN_BIN: Final = re.compile(r"(?:^|/)s?bin/[^/]+$")
# How far the words that say what a program does may be from its start.
NEAR: Final = 64


class Program(NamedTuple):
    """One program that would run, its arguments, and how it was called."""

    name: str
    args: tuple[Word, ...]
    path: str


# A file's name with an ending, perhaps by pattern, that cannot be taken for an option.
_FILE: Final = re.compile(r"[\w*?./][\w*?./-]*\.[A-Za-z]\w*")


def _computes(word: Word) -> bool:
    return any(piece.kind not in ("bare", "quoted") for piece in word.pieces)


class Budget:
    """How much may still be read: scripts in scripts in words would otherwise take forever.

    A line may be read about three times over; a short one, with its words as scripts, more often.
    """

    def __init__(self) -> None:
        self._left: int | None = None
        self._commands = MAX_COMMANDS
        self._words = MAX_WORDS

    def take(self, length: int) -> bool:
        """Return whether `length` more characters may be read; the first that are taken are the line itself."""
        if self._left is None:
            self._left = MAX_SCRIPT + 3 * length
        self._left -= length + 16
        return self._left > 0

    def take_commands(self, commands: Sequence[SimpleCommand]) -> bool:
        """Return whether these commands may be looked at too."""
        self._commands -= len(commands)
        self._words -= sum(len(command.words) for command in commands)
        return self._commands >= 0 and self._words >= 0


class GuessingFinder(ABC):
    """Collects programs that may run.

    `maybe` are programs that others may run, such as the words of a program that no table knows;
    `mentioned` are names in code that is not parsed; `problem` says why programs may be missing, `unreadable`
    that a line cannot be parsed; `plain` is False where a command also sets variables for programs or writes to a file.
    """

    def __init__(self, *, guess: bool = True, budget: Budget | None = None) -> None:
        self.guesses = guess
        self.budget = budget or Budget()
        self.prompts = False
        self.programs: list[Program] = []
        self.maybe: list[Program] = []
        self.written: dict[str, str] = {}
        self.said = ""
        self.loops: set[str] = set()
        self.mentioned: set[str] = set()
        self.problem: str | None = None
        self.unreadable: str | None = None
        self.plain = True

    @abstractmethod
    def script(self, text: str, depth: int = 0) -> None:
        """Add what a script runs."""

    @abstractmethod
    def simple(self, simple: SimpleCommand, depth: int = 0) -> None:
        """Add what a simple command runs."""

    @abstractmethod
    def fresh(self, *, guess: bool) -> GuessingFinder:
        """Return a finder of the same kind that has found nothing yet."""

    def maybe_script(self, text: str, depth: int, *, sure: bool = False) -> None:
        """Add what a text would run if it were a command line: another program may take it for one.

        With `sure` it does, so what cannot be known of it is a problem.
        """
        if depth > MAX_DEPTH:
            self.problem = self.unreadable = TOO_DEEP
            return
        # In prose, only the first word of a sentence may be a program: "please use curl".
        finder = self.fresh(guess=sure and self.guesses)
        finder.script(text, depth + 1)
        self.mentioned |= leading_names(text)
        self.maybe += (*finder.programs, *finder.maybe)
        self.mentioned |= finder.mentioned
        self.problem = self.problem or (finder.problem if sure else None)

    def read_subscripts(self, text: str, depth: int) -> None:
        """Read the substitutions in a subscript: arithmetic runs them, however they are quoted (`a[$(curl x)]`)."""
        inside = text.partition("[")[2]
        if "$(" in inside or "`" in inside or (inside and "${" in inside):
            script = parse_substitutions(inside, depth + 1)
            for simple in script.commands:
                self.simple(simple, depth + 1)

    def follow_texts(self, words: Sequence[Word], simple: SimpleCommand, depth: int) -> None:
        """Follow text that the line says or writes to a file, to a program that may run it."""
        name = program_name(words[0].text)
        inert = name in wrappers.INERT and name != "chmod"
        said, self.said = self.said, ""
        if said and simple.piped and not inert:
            self.maybe_script(said, depth, sure=name in wrappers.FED)
        if self.written:
            used = [word.text for word in words[: 1 if inert else None]]
            for path in [path for path in self.written if any(path in word for word in used)]:
                self.maybe_script(self.written.pop(path), depth, sure=name != "chmod")
        if name in wrappers.WRITES_TEXT:
            text = "\n".join((*(word.text for word in words[1:]), *simple.fed))
            targets = [redirect.target.text for redirect in simple.redirects if ">" in redirect.operator]
            if name == "tee":
                text = said or text
                targets += [word.text for word in words[1:]]
            self.written.update((target.rpartition("/")[2], text) for target in targets if target)
            self.said = text if simple.feeds == "pipe" else ""
            if simple.feeds == "process":
                self.maybe_script(text, depth)

    def guess(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        if name.rstrip("0123456789.-") in wrappers.INTERPRETERS:
            self._code(name, args, simple, depth)
            return
        if name in wrappers.FINDS and simple.feeds:
            self.mentioned.update(program_name(word.text) for word in args)
        if name in wrappers.INERT or name in wrappers.WRAPPERS or name in wrappers.SHELLS:
            self._options(name, args, depth)
            return
        if name in wrappers.HAVE_OWN_WORDS:
            args = tuple(word for word in args if word.text not in wrappers.OWN_WORDS)
        for i, word in enumerate(args if self.guesses or name in wrappers.RUNNERS else ()):
            self.mentioned.update(names_in(word.text) if name in wrappers.RUNNERS else ())
            self.take_unknown(word, args[i + 1 :] if i < NEAR else (), depth, sure=name in wrappers.RUNNERS)

    def _code(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        texts = [*(word.text for word in args), *simple.fed]
        sed = name.endswith("sed")
        starts = any(starts_programs(text, sed=sed) for text in texts)
        for text in texts:
            self.mentioned.update(names_in(text))
            for inner in scripts_in(text, sed=sed) if self.guesses else ():
                self.maybe_script(inner, depth, sure=starts)
        if simple.piped and (not args or args[-1].text in STDIN):
            self.problem = IS_FED
        if any(
            (word.dynamic and not word.text and not self.is_listed_file(word))
            or any(p.kind == "process" for p in word.pieces)
            for word in args
        ):
            self.problem = LATE_SCRIPT
        # Code that the line feeds it: an allow of the interpreter does not cover that.
        self.plain = self.plain and not simple.fed

    def is_listed_file(self, word: Word) -> bool:
        """Return whether a word is the variable of a loop over files: `for f in *.py; do python "$f"; done`."""
        return len(word.pieces) > 0 and all(
            piece.kind == "variable" and piece.text in self.loops
            for piece in word.pieces
            if piece.kind != "quoted" or piece.text
        )

    def note_loop(self, words: Sequence[Word]) -> None:
        """Note a loop whose words are files by their names, so that no option or code can be among them."""
        if words and len(words) > 1:
            known = all(_FILE.fullmatch(word.text) and not _computes(word) for word in words[1:])
            (self.loops.add if known else self.loops.discard)(words[0].text)

    def _options(self, name: str, args: tuple[Word, ...], depth: int) -> None:
        """Note the programs that options of a program with harmless words may name: `tar -I curl`."""
        if name in wrappers.COPIES:
            self.mentioned.update(program_name(word.text) for word in args if _IN_BIN.search(word.text))
        after = wrappers.RUNNING_OPTIONS.get(name, ())
        for i, word in enumerate(args):
            before = args[i - 1].text if i else ""
            if before in after or may_hold_program(name, word.text) or (name == "git" and args[0].text == "config"):
                self._run_by_option(word.text, depth)
            for option in after:
                if word.text.startswith(option) and len(word.text) > len(option):
                    self._run_by_option(word.text[len(option) :], depth)

    def _run_by_option(self, text: str, depth: int) -> None:
        self.mentioned.update(names_in(text))
        for inner in scripts_in(text):
            self.maybe_script(inner, depth, sure=True)

    def take_unknown(self, word: Word, rest: tuple[Word, ...], depth: int, *, sure: bool = False) -> None:
        """Note what a word would run, of a program that may run its words."""
        if is_script(word.text):
            self.maybe_script(word.text, depth, sure=sure)
            return
        for name in leading_names(word.text):
            self.maybe.append(Program(name, rest, word.text))
