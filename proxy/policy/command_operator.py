"""The `command` operator: whether a command line runs one of the given programs. Pure, no I/O."""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.command_escapes import escapes_of
from proxy.policy.command_mentions import program_name
from proxy.policy.command_unwrap import ProgramFinder
from proxy.policy.conditions import as_tuple
from proxy.policy.globs import compile_globs
from proxy.policy.shell import SimpleCommand
from proxy.policy.shell_words import Word, may_be_all, plain_path
from proxy.policy.text import read_text
from proxy.policy.views import MAY, NO, YES, Test, WrongTypeError, gather, judge_each
from proxy.policy.wrappers import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.policy.arg_path import ArgPath
    from proxy.policy.command_guess import Program

# An allow of `ls` covers /bin/ls but not ./ls or /tmp/ls, which anybody may have put there.
_TRUSTED: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin"})
# Programs whose first word, unless it is an option, says what they do.
_SUBCOMMANDS: Final = frozenset({"git"})


class CommandView(NamedTuple):
    """What a command line would run: `run` certainly, `maybe` in some readings of the text.

    `plain` is False where it also sets variables for a program or writes to a
    file: an allow of programs does not cover that.
    """

    run: tuple[Program, ...]
    maybe: tuple[Program, ...]
    mentioned: frozenset[str]
    problem: str | None
    plain: bool


def view_command(value: Any) -> CommandView:
    """View a string as a shell command line, an array of strings as an argv."""
    if isinstance(value, str):
        return _view_text(value)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise WrongTypeError("a command line", value)
    finder = ProgramFinder()
    if value:
        finder.simple(SimpleCommand(tuple(Word(text) for text in value)))
    # Some servers join an argv and hand it to a shell.
    loose = _find(" ".join(value))
    for text in value:
        if any(c in text for c in " ;|&$`\n"):
            loose.script(text)
    mentioned = frozenset(finder.mentioned | loose.mentioned)
    maybe = (*finder.maybe, *loose.programs, *loose.maybe)
    return CommandView(tuple(finder.programs), maybe, mentioned, finder.problem, finder.plain)


def _view_text(value: str) -> CommandView:
    first, *decoded = [_find(reading) for reading in read_text(value).readings]
    # cmd.exe: `C:\Windows\curl.exe` has folders, and `cu^rl` runs curl. bash reads both otherwise,
    # so these programs only may run.
    others = dict.fromkeys(value.replace(*pair) for pair in (("\\", "/"), ("^", "")) if pair[0] in value)
    windows = [_find(other) for other in others]
    return CommandView(
        tuple(program for finder in (first, *decoded) for program in finder.programs),
        (
            *(program for finder in (first, *decoded, *windows) for program in finder.maybe),
            *(program for finder in windows for program in finder.programs),
        ),
        frozenset(name for finder in (first, *decoded, *windows) for name in finder.mentioned),
        first.problem,
        all(finder.plain for finder in (first, *decoded)),
    )


def _find(text: str) -> ProgramFinder:
    finder = ProgramFinder()
    finder.script(text)
    return finder


class CommandPattern(NamedTuple):
    """One operand of `command`: the program, and the words that must follow it."""

    program: str
    fits: Callable[[str], bool]
    words: tuple[str, ...]
    path: str


def command(arg: ArgPath, operand: Any) -> Test:
    patterns = [parse_pattern(text) for text in as_tuple(operand)]
    return judge_each(gather(arg, "command", view_command), lambda view: _judge(view, patterns), with_problems=True)


def parse_pattern(text: str) -> CommandPattern:
    """Parse one operand, such as `git push --force`."""
    words = shlex.split(text)
    program = program_name(words[0])
    return CommandPattern(program, compile_globs([program]), tuple(words[1:]), words[0])


def _judge(view: CommandView, patterns: list[CommandPattern]) -> int:
    readable = bool(view.run) and view.problem is None and view.plain
    if readable and all(any(_covers(pattern, program) for pattern in patterns) for program in view.run):
        return YES
    if any(_may_match(pattern, program) for pattern in patterns for program in (*view.run, *view.maybe)):
        return MAY
    return MAY if any(pattern.fits(name) for pattern in patterns for name in view.mentioned) else NO


def _covers(pattern: CommandPattern, program: Program) -> bool:
    """Return whether an allow of `pattern` covers this: the same program, and its operands first."""
    # `git push --force origin status` is no `git status`: operands count only where they lead.
    folder, slash, _ = program.path.rpartition("/")
    is_itself = program.path == pattern.path if "/" in pattern.path else not slash or folder in _TRUSTED
    if not is_itself or not pattern.fits(program.name):
        return False
    if not all(_names_escape(pattern, escape) for escape in escapes_of(program.name, [w.text for w in program.args])):
        return False
    operands = [word for word in pattern.words if not word.startswith("-")]
    options = [word for word in pattern.words if word.startswith("-")]
    leading = program.args[: len(operands)]
    return (
        len(leading) == len(operands)
        and all(not word.dynamic and _has_word(wanted, (word,)) for wanted, word in zip(operands, leading, strict=True))
        and all(_has_word(wanted, program.args) for wanted in options)
    )


def _names_escape(pattern: CommandPattern, escape: str) -> bool:
    """Return whether a pattern names an option or a word that runs other programs."""
    return escape in pattern.words or (
        len(escape) == 2 and any(escape[1] in word[1:] for word in pattern.words if word.startswith("-"))
    )


def _may_match(pattern: CommandPattern, program: Program) -> bool:
    if not pattern.fits(program.name) or _is_other_subcommand(pattern, program):
        return False
    missing = [wanted for wanted in pattern.words if not _has_word(wanted, program.args)]
    late = [word.shape for word in program.args if word.dynamic]
    shapes = [shape for shape in late if shape is not None]
    return not missing or len(shapes) < len(late) or may_be_all(missing, shapes)


def _is_other_subcommand(pattern: CommandPattern, program: Program) -> bool:
    """Return whether this is `git commit` where `git push` is meant, whatever words follow."""
    if program.name not in _SUBCOMMANDS or not pattern.words or not program.args:
        return False
    wanted, given = pattern.words[0], program.args[0]
    named = not wanted.startswith("-") and not given.dynamic and not given.text.startswith("-")
    return named and not _has_word(wanted, (given,))


def _has_word(wanted: str, args: tuple[Word, ...]) -> bool:
    texts = [word.text for word in args]
    if wanted.startswith("--"):
        return any(_is_long(wanted, text) for text in texts)
    if wanted.startswith("-") and len(wanted) > 1:
        letters = "".join(text[1:] for text in texts if text.startswith("-") and not text.startswith("--"))
        return all(c in letters or (c in LONG and any(_is_long(LONG[c], text) for text in texts)) for c in wanted[1:])
    fits = _word_glob(wanted)
    return any(fits(text) or fits(plain_path(text)) for text in texts)


@lru_cache(maxsize=1024)
def _word_glob(wanted: str) -> Callable[[str], bool]:
    return compile_globs([wanted])


def _is_long(wanted: str, text: str) -> bool:
    # getopt takes `--opt=value` and any start of a long option: `rm --recurs --forc /`.
    given = text.partition("=")[0]
    return given == wanted or (len(given) > 3 and given.startswith("--") and wanted.startswith(given))
