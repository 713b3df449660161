"""Find the programs behind programs that run others: sudo, env, xargs, find -exec, sh -c. Pure, no I/O.

Code for an interpreter is not parsed, but a program that is named in it counts as one that may run.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.policy import wrappers
from proxy.policy.shell import MAX_DEPTH, SimpleCommand, parse_script
from proxy.policy.shell_words import Word, shape_below
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Sequence


# Where a program is expected these are none; the program follows: `sudo { curl x; }`, `! curl x`.
_OPENERS: Final = frozenset({"{", "!", "then", "do"})
_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_LATE: Final = "a program whose name is known only when it runs"
_LATE_SCRIPT: Final = "a script whose text is known only when it runs"
_IS_FED: Final = "a program that reads its commands from standard input"


class Program(NamedTuple):
    """One program that would run, its arguments, and how it was called."""

    name: str
    args: tuple[Word, ...]
    path: str


class ProgramFinder:
    """Collects the programs that scripts would run.

    `mentioned` are names in code that is not parsed; `problem` says why programs may be missing, `unreadable`
    that a line cannot be parsed; `plain` is False where a command also sets variables for programs or writes to a file.
    """

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.mentioned: set[str] = set()
        self.problem: str | None = None
        self.unreadable: str | None = None
        self.plain = True

    def script(self, text: str, depth: int = 0) -> None:
        script = parse_script(text, depth)
        self.unreadable = "a NUL character" if "\0" in text else self.unreadable or script.problem
        self.problem = self.problem or self.unreadable
        self.plain = self.plain and not script.writes
        for simple in script.commands:
            self.simple(simple, depth)

    def simple(self, simple: SimpleCommand, depth: int = 0) -> None:
        words = [] if simple.loop else list(simple.words)
        # `X=1 curl` runs curl. A leading option is what is left of an argv such as `-c "curl x"`.
        while words and (_is_assignment(words[0]) or (words[0].text.startswith("-") and len(words) > 1)):
            self._assignment(words.pop(0))
        if words:
            self.run(words, simple, depth)

    def _assignment(self, word: Word) -> None:
        name, _, value = word.text.partition("=")
        self.plain = False
        self.mentioned.update(_names_in(value))
        if name.startswith(wrappers.LOADING):
            self.problem = f"a command that sets {name}"

    def run(self, words: Sequence[Word], simple: SimpleCommand, depth: int) -> None:
        """Add `words` as a program with its arguments, and whatever that program runs."""
        head, args = words[0], tuple(words[1:])
        if depth > MAX_DEPTH:
            self.problem = self.unreadable = "a command too deeply nested"
            return
        if head.text in _OPENERS and args:
            self.simple(simple._replace(words=args), depth + 1)
            return
        name = program_name(head.text)
        # `$CMD x`, `find -exec {} ;` and cmd.exe's `%COMSPEC% /c x` can be any program.
        if head.dynamic or "{}" in head.text or name.count("%") > 1:
            self.problem = _LATE
        self.programs.append(Program(name, args, head.text))
        self._mentions(name, args, simple)
        self._see_through(name, args, simple, depth)

    def _see_through(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        if name in wrappers.SHELLS:
            self._shell(args, simple, depth)
        elif name in wrappers.WINDOWS_SHELLS:
            self._windows_shell(args, depth)
        elif name in ("eval", "trap", "alias", "iex", "invoke-expression"):
            self._joined(name, args, depth)
        elif name in ("find", "fd", "fdfind"):
            self._executing(args, simple, depth)
        elif name in (".", "source") and any(word.dynamic or word.text in _STDIN for word in args[:1]):
            self.problem = _LATE_SCRIPT
        if name in wrappers.FED:
            self._fed(name, simple, depth)
        if name in wrappers.SCRIPT_OPTIONS:
            self._script_option(wrappers.SCRIPT_OPTIONS[name], args, depth)
        if name in wrappers.WRAPPERS:
            self._wrapped(name, args, simple, depth)

    def _shell(self, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        options = ""
        operands = list(args)
        while operands and operands[0].text.startswith(("-", "+")) and not operands[0].dynamic:
            option = operands.pop(0).text
            options += "" if option.startswith("--") else option[1:]
            if option in wrappers.SHELL_VALUE_OPTIONS and operands:
                operands.pop(0)
        # `bash`, `bash -s` and `bash /dev/stdin` run whatever comes in: `base64 -d x | sh`.
        reads_stdin = not operands or "s" in options or operands[0].text in _STDIN
        if "c" in options:
            self._script_word(operands[0] if operands else None, depth)
        elif reads_stdin and (simple.piped or not simple.fed):
            self.problem = _IS_FED
        elif operands and operands[0].dynamic:
            self.problem = _LATE_SCRIPT
        for text in simple.fed:
            self.script(text, depth + 1)

    def _script_word(self, word: Word | None, depth: int) -> None:
        if word is None:
            self.problem = _IS_FED
            return
        self._dynamic((word,))
        self.script(word.text, depth + 1)

    def _windows_shell(self, args: tuple[Word, ...], depth: int) -> None:
        texts = [word.text for word in args]
        for i, text in enumerate(texts):
            lowered = text.lower()
            self.mentioned.update(_names_in(text))
            # cmd.exe needs no blank behind the option: `cmd /ccurl x`.
            if lowered.startswith(("/c", "/k")) and len(text) > 2:
                self.script(" ".join((text[2:], *texts[i + 1 :])), depth + 1)
            # PowerShell takes any unambiguous start of -EncodedCommand, with - or with /.
            if lowered.startswith(("-e", "/e")) and "-encodedcommand".startswith("-" + lowered[1:]):
                self.problem = "an encoded command"
            if lowered in ("/c", "/k", "-c", "-command", "/command") and i + 1 < len(texts):
                self.script(" ".join(texts[i + 1 :]), depth + 1)
        if not texts or texts[-1] == "-":
            self.problem = _IS_FED

    def _joined(self, name: str, args: tuple[Word, ...], depth: int) -> None:
        self._dynamic(args)
        texts = [word.text for word in args]
        if name == "alias":
            texts = [text.partition("=")[2] for text in texts]
        elif name == "trap":
            texts = [text for text in texts if not text.startswith("-")][:1]
        self.script(" ".join(texts), depth + 1)

    def _fed(self, name: str, simple: SimpleCommand, depth: int) -> None:
        for text in simple.fed:
            self.script(text, depth + 1)
        if simple.piped and name not in wrappers.WRAPPERS:
            self.problem = _IS_FED

    def _dynamic(self, words: Sequence[Word]) -> None:
        if any(word.dynamic for word in words):
            self.problem = _LATE_SCRIPT

    def _executing(self, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        for i, word in enumerate(args):
            if word.text in wrappers.EXECUTING and i + 1 < len(args):
                rest = args[i + 1 :]
                end = next((j for j, w in enumerate(rest) if w.text in (";", "+")), len(rest))
                if rest[:end]:
                    self.run([_fill_in(word, args[:i]) for word in rest[:end]], simple, depth + 1)

    def _script_option(self, letter: str, args: tuple[Word, ...], depth: int) -> None:
        long = {"c": "--command", "S": "--split-string"}[letter]
        for i, word in enumerate(args):
            text = word.text
            following = args[i + 1] if i + 1 < len(args) else None
            attached = text.partition("=" if text.startswith("--") else letter)[2]
            bundled = letter in text and text.startswith("-") and not text.startswith("--")
            if bundled or text == long or text.startswith(long + "="):
                self._script_word(word._replace(text=attached) if attached else following, depth)

    def _wrapped(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        # `command -v curl` only looks a program up.
        if name == "command" and any(word.text in ("-v", "-V") for word in args[:1]):
            return
        if name in ("xargs", "parallel"):
            # Their input becomes arguments, so a shell behind them is fed even where no pipe is written.
            simple = simple._replace(piped=True, fed=())
            args = _replaced(args)
        rest = self._operands(args, *wrappers.WRAPPERS[name])
        if not rest:
            if simple.piped and name != "xargs":
                self.problem = _IS_FED
        elif name in wrappers.THROUGH_SHELL:
            self._dynamic(rest)
            self.script(" ".join(word.text for word in rest), depth + 1)
        else:
            self.run(rest, simple, depth + 1)

    def _operands(self, args: tuple[Word, ...], with_value: str, skipped: int) -> list[Word]:
        """Drop a wrapper's own options, assignments and first `skipped` operands."""
        rest = list(args)
        while rest:
            text = rest[0].text
            if text == "--":
                return rest[1 + skipped :]
            if text.startswith("-"):
                # `-u5` has its value in itself, `-Eu` takes the next word.
                short = text[-1] in with_value and not any(letter in with_value for letter in text[1:-1])
                takes_value = text in wrappers.LONG_WITH_VALUE if text.startswith("--") else short
                del rest[: 2 if takes_value else 1]
            elif _is_assignment(rest[0]):
                self._assignment(rest.pop(0))
            elif skipped:
                skipped -= 1
                rest.pop(0)
            else:
                break
        return rest

    def _mentions(self, name: str, args: tuple[Word, ...], simple: SimpleCommand) -> None:
        if name.rstrip("0123456789.-") in wrappers.INTERPRETERS:
            for text in (*(word.text for word in args), *simple.fed):
                self.mentioned.update(_names_in(text))
            if simple.piped and (not args or args[-1].text in _STDIN):
                self.problem = _IS_FED
            if any(word.dynamic and not word.text for word in args):
                self.problem = _LATE_SCRIPT
            return
        after = wrappers.RUNNING_OPTIONS.get(name, ())
        for i, word in enumerate(args):
            before = args[i - 1].text if i else ""
            if name in wrappers.RUNNERS or before in after or _may_hold_program(name, word.text):
                self.mentioned.update(_names_in(word.text))
            for option in after:
                if word.text.startswith(option) and len(word.text) > len(option):
                    self.mentioned.update(_names_in(word.text[len(option) :]))


def _may_hold_program(name: str, text: str) -> bool:
    # Such as `git -c core.pager=curl log`, `-c alias.x='!curl y'`, `tar --checkpoint-action=exec=curl`.
    lowered = text.lower()
    return (
        any(mark in lowered for mark in ("exec=", "command=", "program=", "pager=", "editor=", "system("))
        or text.startswith("!")
        or "=!" in text
        or (name == "git" and "=" in text)
    )


def _replaced(args: tuple[Word, ...]) -> tuple[Word, ...]:
    marks = {"{}"}  # in words that xargs fills in from its input
    for i, word in enumerate(args):
        if word.text in ("-I", "-J", "--replace") and i + 1 < len(args):
            marks.add(args[i + 1].text)
        elif word.text.startswith(("-I", "-i")) and len(word.text) > 2:
            marks.add(word.text[2:])
        elif word.text.startswith("--replace="):
            marks.add(word.text.partition("=")[2])
    return tuple(
        word._replace(dynamic=True, shape=None) if any(mark in word.text for mark in marks if mark) else word
        for word in args
    )


def _fill_in(word: Word, before: Sequence[Word]) -> Word:
    """Return a word of `find -exec` in which `{}` is one of the roots that come `before`, or a path below them."""
    if "{}" not in word.text:
        return word
    roots = list(takewhile(lambda root: not root.text.startswith(("-", "(", "!")), before))
    if word.text != "{}" or any(root.dynamic for root in roots):
        return word._replace(dynamic=True, shape=None)
    return word._replace(dynamic=True, shape=shape_below([root.text for root in roots]))


def _names_in(text: str) -> set[str]:
    # Once with paths whole and once in parts: `s/x/curl/e` of sed has the name between slashes.
    cleaned = "".join(c if c.isalnum() or c in "_.+-/" else " " for c in text)
    names = {program_name(part) for part in cleaned.split()}
    return names | {program_name(part) for part in cleaned.replace("/", " ").split()}


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.text.partition("=")
    name = name.removesuffix("+").partition("[")[0]
    return bool(equals) and name.isidentifier() and name.isascii()


def program_name(text: str) -> str:
    """Return the name of a program without folder, case and Windows suffix."""
    name = fold(text.replace("\\", "/").rstrip("/").rpartition("/")[2])
    for suffix in wrappers.SUFFIXES:
        name = name.removesuffix(suffix)
    return name or fold(text)
