"""Find the programs behind programs that run others: sudo, env, xargs, find -exec, sh -c. Pure, no I/O.

Code for an interpreter is not parsed, but a program that is named in it counts as one that may run.
"""

from __future__ import annotations

import re
from itertools import takewhile
from shlex import quote
from typing import TYPE_CHECKING, Final

from proxy.policy import wrappers
from proxy.policy.command_guess import IS_FED, LATE_SCRIPT, NEAR, STDIN, TOO_DEEP, TOO_MANY, GuessingFinder, Program
from proxy.policy.command_mentions import is_script, leading_names, names_in, program_name
from proxy.policy.shell import MAX_DEPTH, SimpleCommand, parse_script
from proxy.policy.shell_words import Word, shape_below

if TYPE_CHECKING:
    from collections.abc import Sequence


# Where a program is expected these are none; the program follows: `sudo { curl x; }`, `! curl x`.
_OPENERS: Final = frozenset({"{", "!", "then", "do"})
_LATE: Final = "a program whose name is known only when it runs"


# The running shell itself, by its process.
_OWN_EXECUTABLE: Final = re.compile(r"^/+proc/+[^/]+/+(?:task/+[^/]+/+)?exe$")
_DESCRIPTOR: Final = re.compile(r"^/+(?:proc/+[^/]+|dev)/+fd/")


class ProgramFinder(GuessingFinder):
    """Collects the programs that scripts would run."""

    def fresh(self, *, guess: bool) -> ProgramFinder:
        return ProgramFinder(guess=guess, budget=self.budget)

    def script(self, text: str, depth: int = 0) -> None:
        if not self.budget.take(len(text)):
            self.problem = self.unreadable = TOO_DEEP
            return
        # `${x@P}` runs the substitutions that a variable holds.
        self.prompts = self.prompts or "@P" in text
        script = parse_script(text, depth)
        self.unreadable = "a NUL character" if "\0" in text else self.unreadable or script.problem
        self.problem = self.problem or self.unreadable
        self.plain = self.plain and not script.writes
        if not self.budget.take_commands(script.commands):
            self.problem = self.unreadable = TOO_MANY
            return
        for simple in script.commands:
            self.simple(simple, depth)

    def simple(self, simple: SimpleCommand, depth: int = 0) -> None:
        for word in (*simple.words, *map(Word, simple.fed)):
            text = word.text
            self.read_subscripts(text, depth)
            if word.dynamic and "[" in text and "$(" in text:
                self.problem = LATE_SCRIPT
            if self.prompts and ("$(" in text or "`" in text):
                self.maybe_script(text, depth, sure=True)
        if simple.loop:
            self.note_loop([word for word in simple.words if word.text != "in"])
        words = [] if simple.loop else list(simple.words)
        # `X=1 curl` runs curl. A leading option is what is left of an argv such as `-c "curl x"`.
        while words and (_is_assignment(words[0]) or (words[0].text.startswith("-") and len(words) > 1)):
            self._assignment(words.pop(0), depth)
        if words:
            self.run(words, simple, depth)

    def _assignment(self, word: Word, depth: int) -> None:
        name, _, value = word.text.partition("=")
        self.plain = False
        self.loops.discard(name)
        self._value(value, depth)
        if name.startswith(wrappers.LOADING):
            self.problem = f"a command that sets {name}"

    def run(self, words: Sequence[Word], simple: SimpleCommand, depth: int) -> None:
        """Add `words` as a program with its arguments, and whatever that program runs."""
        head, args = words[0], tuple(words[1:])
        if depth > MAX_DEPTH:
            self.problem = self.unreadable = TOO_DEEP
            return
        if head.text in _OPENERS and args:
            self.simple(simple._replace(words=args), depth + 1)
            return
        self.follow_texts(words, simple, depth)
        # `read f` and `declare f=…` give the variable of a loop another value.
        self.loops.difference_update(word.text.partition("=")[0] for word in args)
        name = "sh" if _OWN_EXECUTABLE.search(head.text) else program_name(head.text)
        # `$CMD x`, `find -exec {} ;` and cmd.exe's `%COMSPEC% /c x` can be any program.
        if head.dynamic or "{}" in head.text or name.count("%") > 1 or _DESCRIPTOR.search(head.text):
            self.problem = _LATE
        if head.text[:1] in ("!", "@", ":", "^"):
            # What some programs take for a command of the shell: `less x`, then `!curl y`.
            self.maybe += (Program(inner, args, head.text) for inner in leading_names(head.text))
        self.programs.append(Program(name, args, head.text))
        self.guess(name, args, simple, depth)
        self._see_through(name, args, simple, depth)

    def _see_through(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        self._builtin(name, args, simple, depth)
        if name in wrappers.FED:
            self._fed(name, simple, depth)
        if name in wrappers.SCRIPT_OPTIONS:
            self._script_option(wrappers.SCRIPT_OPTIONS[name], args, depth)
        if name in wrappers.LONG_SCRIPT_OPTIONS:
            self._long_script_option(wrappers.LONG_SCRIPT_OPTIONS[name], args, depth)
        if name in wrappers.SUBCOMMANDS:
            self._subcommand(*wrappers.SUBCOMMANDS[name], args, simple, depth)
        if name in wrappers.WRAPPERS:
            self._wrapped(name, args, simple, depth)

    def _builtin(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        if name in wrappers.SHELLS:
            self._shell(args, simple, depth)
        elif name in wrappers.WINDOWS_SHELLS:
            self._windows_shell(args, depth)
        elif name in ("eval", "trap", "alias", "iex", "invoke-expression"):
            self._joined(name, args, depth)
        elif name in ("find", "fd", "fdfind"):
            self._executing(args, simple, depth)
        elif name in (".", "source") and simple.fed:
            for text in simple.fed:
                self.script(text, depth + 1)
        elif name in (".", "source") and args and (args[0].text in STDIN or not _is_emitted(args[0])):
            self.problem = LATE_SCRIPT
        elif name in wrappers.SETS_VARIABLES:
            self._variables(args, depth)

    def _shell(self, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        options = ""
        operands = list(args)
        while operands and operands[0].text.startswith(("-", "+")) and not operands[0].dynamic:
            option = operands.pop(0).text
            options += "" if option.startswith("--") else option[1:]
            if option in wrappers.SHELL_VALUE_OPTIONS and operands and operands.pop(0).dynamic:
                self.problem = LATE_SCRIPT
        # `bash`, `bash -s` and `bash /dev/stdin` run whatever comes in: `base64 -d x | sh`.
        reads_stdin = not operands or "s" in options or operands[0].text in STDIN
        if "c" in options:
            self._script_word(operands[0] if operands else None, depth)
            # The words behind it are `$0`, `$1`, …, which the script may run.
            if self.guesses and len(operands) > 1:
                self.maybe_script(" ".join(word.text for word in operands[1:]), depth)
                self.maybe_script(" ".join(quote(word.text) for word in operands[2:]), depth)
        elif reads_stdin and (simple.piped or not simple.fed):
            self.problem = IS_FED
        elif operands and operands[0].dynamic and not self.is_listed_file(operands[0]):
            self.problem = LATE_SCRIPT
        for text in simple.fed:
            self.script(text, depth + 1)

    def _script_word(self, word: Word | None, depth: int) -> None:
        if word is None:
            self.problem = IS_FED
            return
        self._dynamic((word,))
        self.script(word.text, depth + 1)

    def _windows_shell(self, args: tuple[Word, ...], depth: int) -> None:
        texts = [word.text for word in args]
        for i, text in enumerate(texts):
            lowered = text.lower()
            self.mentioned.update(names_in(text))
            # cmd.exe needs no blank behind the option: `cmd /ccurl x`.
            if lowered.startswith(("/c", "/k")) and len(text) > 2:
                self.script(" ".join((text[2:], *texts[i + 1 :])), depth + 1)
            # PowerShell takes any unambiguous start of -EncodedCommand, with - or with /.
            if lowered.startswith(("-e", "/e")) and "-encodedcommand".startswith("-" + lowered[1:]):
                self.problem = "an encoded command"
            if lowered in ("/c", "/k", "-c", "-command", "/command") and i + 1 < len(texts):
                self.script(" ".join(texts[i + 1 :]), depth + 1)
        if not texts or texts[-1] == "-":
            self.problem = IS_FED

    def _value(self, value: str, depth: int) -> None:
        # Programs run what some variables hold: GIT_PAGER, EDITOR, LESSOPEN.
        self.mentioned.update(names_in(value))
        if is_script(value):
            self.maybe_script(value, depth)

    def _variables(self, args: tuple[Word, ...], depth: int) -> None:
        for word in filter(_is_assignment, args):
            variable, _, value = word.text.partition("=")
            self._value(value, depth)
            # `export PATH=$PATH:~/bin` is in every setup script.
            if variable.startswith(wrappers.LOADING) and variable != "PATH":
                self.problem = f"a command that sets {variable}"

    def _joined(self, name: str, args: tuple[Word, ...], depth: int) -> None:
        self._dynamic([word for word in args if name != "eval" or not _is_emitted(word)])
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
            self.problem = IS_FED

    def _dynamic(self, words: Sequence[Word]) -> None:
        if any(word.dynamic for word in words):
            self.problem = LATE_SCRIPT

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

    def _long_script_option(self, options: Sequence[str], args: tuple[Word, ...], depth: int) -> None:
        for i, word in enumerate(args):
            given, equals, value = word.text.partition("=")
            # getopt takes any start of a long option: `split --filt='curl x'`.
            if len(given) > 2 and any(option.startswith(given) for option in options):
                following = args[i + 1] if i + 1 < len(args) else None
                self._script_word(word._replace(text=value) if equals else following, depth)

    def _subcommand(
        self, words: frozenset[str], skipped: int, args: tuple[Word, ...], simple: SimpleCommand, depth: int
    ) -> None:
        """Add the program behind `uv run`, `bundle exec` or `direnv exec DIR`."""
        at = next((i for i, word in enumerate(args[:NEAR]) if word.text in words), None)
        if at is not None:
            rest = self._operands(args[at + 1 :], "", skipped, depth)
            if rest:
                self.run(rest, simple, depth + 1)

    def _wrapped(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        # `command -v curl` only looks a program up.
        if name == "command" and any(word.text in ("-v", "-V") for word in args[:1]):
            return
        if name in ("xargs", "parallel"):
            # Their input becomes arguments, so a shell behind them is fed even where no pipe is written.
            simple = simple._replace(piped=True, fed=())
            args = _replaced(args)
        rest = self._operands(args, *wrappers.WRAPPERS[name], depth)
        if not rest:
            if simple.piped and name != "xargs":
                self.problem = IS_FED
        elif name in wrappers.THROUGH_SHELL:
            self._dynamic(rest)
            self.script(" ".join(word.text for word in rest), depth + 1)
        else:
            self.run(rest, simple, depth + 1)

    def _operands(self, args: tuple[Word, ...], with_value: str, skipped: int, depth: int) -> list[Word]:
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
                if takes_value and len(rest) > 1:
                    # `--user` takes a value behind sudo and none behind systemd-run.
                    self.maybe_script(" ".join(quote(word.text) for word in rest[1:]), depth)
                del rest[: 2 if takes_value else 1]
            elif _is_assignment(rest[0]) and not is_script(text):
                self._assignment(rest.pop(0), depth)
            elif skipped:
                skipped -= 1
                rest.pop(0)
            else:
                break
        return rest


def _is_emitted(word: Word) -> bool:
    """Return whether a word is static, or made by programs that write code for a shell: `$(direnv hook bash)`."""
    if not word.dynamic:
        return True
    scripts = [piece.text for piece in word.pieces if piece.kind in ("unknown", "process")]
    others = [piece for piece in word.pieces if piece.kind == "variable"]
    return bool(scripts) and not others and all(map(_is_emitter, scripts))


def _is_emitter(script: str) -> bool:
    parsed = parse_script(script)
    if parsed.problem or len(parsed.commands) != 1 or parsed.commands[0].fed:
        return False
    words = parsed.commands[0].words
    if not words or any(word.dynamic for word in words) or words[0].text not in wrappers.EMITTERS:
        return False
    return words[0].text in wrappers.ALWAYS_EMITTING or (len(words) > 1 and words[1].text in wrappers.EMITTING_WORDS)


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


def _is_assignment(word: Word) -> bool:
    name, equals, _ = word.text.partition("=")
    name = name.removesuffix("+").partition("[")[0]
    return bool(equals) and name.isidentifier() and name.isascii()
