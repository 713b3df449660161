"""`command`: which programs would a command line run? Pure, no I/O."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.arg_select import AMBIGUOUS, Trouble
from proxy.policy.command_unwrap import Program, ProgramFinder, program_name
from proxy.policy.conditions import as_tuple
from proxy.policy.globs import compile_globs
from proxy.policy.shell import SimpleCommand
from proxy.policy.shell_words import Word, may_be_all, plain_path
from proxy.policy.text import read_text
from proxy.policy.views import WrongTypeError, gather
from proxy.policy.wrappers import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.policy.arg_select import ArgPath, EvalContext


_TRUSTED: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin"})
"""The folders of programs that an allow takes for the ones it names."""
_SUBCOMMANDS: Final = frozenset({"git"})
"""Programs whose first word, unless it is an option, says what they do."""


class CommandView(NamedTuple):
    """What a command line would run: `run` surely, `maybe` by some reading.

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
        all(finder.plain for finder in (sure, *readings)),
    )


def _find(text: str) -> ProgramFinder:
    finder = ProgramFinder()
    finder.script(text)
    return finder


def _view_argv(value: list[str]) -> CommandView:
    finder = ProgramFinder()
    if value:
        finder.simple(SimpleCommand(tuple(Word(text) for text in value)))
    loose = ProgramFinder()
    for text in value:
        if any(c in text for c in " ;|&$`\n"):
            loose.script(text)
    loose.script(" ".join(value))
    mentioned = frozenset(finder.mentioned | loose.mentioned)
    return CommandView(tuple(finder.programs), tuple(loose.programs), mentioned, finder.problem, finder.plain)


class CommandPattern(NamedTuple):
    """One operand of `command`: the program, and the words that must stand behind it."""

    program: str
    fits: Callable[[str], bool]
    words: tuple[str, ...]
    path: str


def command(arg: ArgPath, operand: Any) -> Callable[[EvalContext], int]:
    """Compile `command`."""
    entries = [parse_pattern(text) for text in as_tuple(operand)]
    views = gather(arg, "command", view_command)

    def test(context: EvalContext) -> int:
        found = views(context)
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
            return int(may) | context.give_up(trouble)
        return 3 if may and must else int(may)

    return test


def parse_pattern(text: str) -> CommandPattern:
    """Read one operand."""
    words = shlex.split(text)
    program = program_name(words[0])
    return CommandPattern(program, compile_globs([program]), tuple(words[1:]), words[0])


def _judge(view: CommandView, entries: list[CommandPattern]) -> int:
    readable = bool(view.run) and view.problem is None and view.plain
    if readable and all(any(_covers(entry, program) for entry in entries) for program in view.run):
        return 3
    if any(_may_match(entry, program) for entry in entries for program in (*view.run, *view.maybe)):
        return 1
    return int(any(entry.fits(name) for entry in entries for name in view.mentioned))


def _covers(entry: CommandPattern, program: Program) -> bool:
    """Return whether an allow of `entry` means this: the very program, and the words that say what it does first."""
    if not entry.fits(program.name) or not _is_itself(entry, program.path):
        return False
    operands = [word for word in entry.words if not word.startswith("-")]
    options = [word for word in entry.words if word.startswith("-")]
    leading = program.args[: len(operands)]
    return (
        len(leading) == len(operands)
        and all(not word.dynamic and _has_word(wanted, (word,)) for wanted, word in zip(operands, leading, strict=True))
        and all(_has_word(wanted, program.args) for wanted in options)
    )


def _is_itself(entry: CommandPattern, path: str) -> bool:
    """Return whether a program called so is the one that `entry` names, not another of that name."""
    folder, slash, _ = path.rpartition("/")
    return path == entry.path if "/" in entry.path else not slash or folder in _TRUSTED


def _may_match(entry: CommandPattern, program: Program) -> bool:
    if not entry.fits(program.name) or _is_other_subcommand(entry, program):
        return False
    missing = [wanted for wanted in entry.words if not _has_word(wanted, program.args)]
    late = [word.shape for word in program.args if word.dynamic]
    shapes = [shape for shape in late if shape is not None]
    return not missing or len(shapes) < len(late) or may_be_all(missing, shapes)


def _is_other_subcommand(entry: CommandPattern, program: Program) -> bool:
    """Tell `git commit` from `git push`, whatever the words after it may be."""
    if program.name not in _SUBCOMMANDS or not entry.words or not program.args:
        return False
    wanted, given = entry.words[0], program.args[0]
    named = not wanted.startswith("-") and not given.dynamic and not given.text.startswith("-")
    return named and not _has_word(wanted, (given,))


def _has_word(wanted: str, args: tuple[Word, ...]) -> bool:
    texts = [word.text for word in args]
    if wanted.startswith("--"):
        return any(_is_long(wanted, text) for text in texts)
    if wanted.startswith("-") and len(wanted) > 1:
        return all(_has_letter(letter, texts) for letter in wanted[1:])
    fits = compile_globs([wanted])
    return any(fits(text) or fits(plain_path(text)) for text in texts)


def _is_long(wanted: str, text: str) -> bool:
    """Return whether `text` is the option, with a value or shortened as getopt allows."""
    given = text.partition("=")[0]
    return given == wanted or (len(given) > 3 and given.startswith("--") and wanted.startswith(given))


def _has_letter(letter: str, texts: list[str]) -> bool:
    long = LONG.get(letter)
    return any(
        (text.startswith("-") and not text.startswith("--") and letter in text[1:])
        or (long is not None and _is_long(long, text))
        for text in texts
    )
