"""The paths and hosts that a command line names, as its programs would use them. Pure, no I/O.

Every word, redirection and assignment that may be a path is one, wherever it stands: behind `sudo`, in `sh -c`, in a
substitution, in code for an interpreter. `cd`, variables of the line, braces and defaults are followed.

What only the machine knows (`ls $DIR`) is no path: most such lines are harmless. It leaves the answer incomplete, so
an allow does not cover it. Text that the line itself computes (`cat $(echo L2V0Yw== | base64 -d)`) is a problem.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from posixpath import join
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.policy import command_programs as programs
from proxy.policy import wrappers
from proxy.policy.command_expand import MAX_TEXTS, UNKNOWN_TEXT, expand_word, spoken_text
from proxy.policy.command_guess import TOO_DEEP, Budget
from proxy.policy.command_mentions import program_name
from proxy.policy.command_places import is_inside, local_words
from proxy.policy.command_unwrap import ProgramFinder
from proxy.policy.command_writes import READERS, written_words
from proxy.policy.globs import is_glob
from proxy.policy.shell import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from proxy.policy.shell import SimpleCommand
    from proxy.policy.shell_words import Word

MAX_PATHS: Final = 2000
_MAX_FOLDERS: Final = 8
_MAX_PARTS: Final = 32
# Behind one of these a path may begin inside a word: `--file=/etc/x`, `a=@/etc/x`, `host:/etc/x`, `x{/etc/y`.
_SPLIT: Final = re.compile(r"[=@,:<>|;{(\s]+")
_CODE_PATH: Final = re.compile(r"""(?:(?<=["'`\s(=\[,<>])|(?<=["'`\s(=]@))(?:~|\.{0,2}/)[^\s"'`()\[\]{}<>;,|]*""")
_JOINED_LITERALS: Final = re.compile(r"""["']\s*[+.,]?\s*["']""")
_SED_FILE: Final = re.compile(r"(?:^|[\s;{}\d$/!])([rRwW])\s*([^\s;}][^\n;}]*)")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'`<>|)]+")
_DEV: Final = re.compile(r"/dev/(?:tcp|udp)/([^/\s\"']+)")
_COMPUTED: Final = "text that the command line computes, such as by base64 or sed"
_TOO_MANY: Final = "more words than can be judged"
# Code that makes a text out of numbers or other texts.
_MAKERS: Final = ("chr(", "fromCharCode", "b64", "base64", "fromhex", "decode(", "\\x", "\\u00", "pack(", "atob(")
_KNOWN: Final = {
    "HOME": ("~",),
    "PWD": (".",),
    "IFS": (" ",),
    **dict.fromkeys(("USER", "LOGNAME", "USERNAME", "HOSTNAME", "UID", "EUID", "RANDOM", "PPID"), ("*",)),
}


class CommandPath(NamedTuple):
    """One path: its text, and the folder it starts from where `text` is relative and the line says which.

    `text` may start with `~` and hold globs; `**` at its end says that everything below is meant. Without `sure` the
    word is a path only to some programs: a deny counts it, an allow does not need it. With `write` the line may
    change what is there, and not only read it.
    """

    text: str
    folder: str | None = None
    sure: bool = True
    write: bool = False


class CommandPaths(NamedTuple):
    """What a command line names. `hosts` are hosts or URLs.

    `problem` says why the line cannot be judged. Without `complete` it may use other paths and hosts than these.
    """

    paths: tuple[CommandPath, ...] = ()
    hosts: tuple[str, ...] = ()
    problem: str | None = None
    complete: bool = True


@lru_cache(maxsize=16)
def read_command_paths(line: str) -> CommandPaths:
    """Return the paths and hosts that a shell command line names."""
    finder = _PathFinder()
    finder.script(line)
    return finder.result()


def read_argv_paths(argv: Sequence[str]) -> CommandPaths:
    """Return the paths and hosts that an argv names, taken as it is and as a shell would read it joined."""
    return read_command_paths(" ".join(argv))


class _PathFinder(ProgramFinder):
    def __init__(self, *, guess: bool = True, budget: Budget | None = None) -> None:
        super().__init__(guess=guess, budget=budget)
        self.variables: dict[str, tuple[str, ...]] = dict(_KNOWN)
        self.paths: dict[CommandPath, None] = {}
        self.hosts: dict[str, None] = {}
        self.folders: list[str | None] = [None]
        self.certain = True
        self.complete = True
        self.computed = False
        self.spoken = False
        self.changed = False
        self.piped_words: list[str] = []

    def fresh(self, *, guess: bool) -> _PathFinder:
        return _PathFinder(guess=guess, budget=self.budget)

    def result(self) -> CommandPaths:
        problem = self.unreadable or (_COMPUTED if self.computed else None)
        if len(self.paths) + len(self.hosts) > MAX_PATHS:
            problem = _TOO_MANY
        complete = self.complete and self.problem is None
        return CommandPaths(tuple(self.paths)[:MAX_PATHS], tuple(self.hosts)[:MAX_PATHS], problem, complete)

    def simple(self, simple: SimpleCommand, depth: int = 0) -> None:
        words = tuple(found for word in simple.words for found in expand_word(word, self.variables))
        if len(words) > MAX_PATHS:
            self.unreadable = _TOO_MANY
            return
        if simple.loop:
            self._set(words[0].text if words else "", [word.text for word in words[1:]])
            return
        if simple.after not in ("", "&&", "|", "|&"):
            # A `cd` may have failed: what follows may run where the line started.
            self.certain = False
        fed = list(simple.fed)
        for redirect in simple.redirects:
            targets = expand_word(redirect.target, self.variables)
            if redirect.operator == "<<<":
                fed += [target.text for target in targets]
            else:
                self._redirect(redirect.operator, targets)
        simple = simple._replace(fed=tuple(dict.fromkeys(fed)))
        self._compute(words, simple)
        super().simple(simple._replace(words=words), depth)

    def maybe_script(self, text: str, depth: int, *, sure: bool = False) -> None:
        if depth > MAX_DEPTH:
            self.problem = self.unreadable = TOO_DEEP
            return
        finder = self.fresh(guess=sure and self.guesses)
        finder.variables, finder.folders = dict(self.variables), list(self.folders)
        finder.script(text, depth + 1)
        self.paths |= dict.fromkeys(path._replace(sure=False) for path in finder.paths)
        self.hosts |= finder.hosts
        self.computed = self.computed or (finder.computed and sure)
        self.problem = self.problem or (finder.problem if sure else None)

    def _redirect(self, operator: str, targets: Sequence[Word]) -> None:
        for target in targets:
            if not (operator.endswith("&") and target.text.rstrip("-").isdecimal()):
                self._word(target.text, write=">" in operator)

    def _compute(self, words: Sequence[Word], simple: SimpleCommand) -> None:
        """Notice text of the line that goes through a program which changes it, and is then read as words."""
        name = program_name(words[0].text) if words else ""
        self.spoken = self.spoken and simple.piped
        if name in programs.SPEAKERS:
            self.spoken = any(word.text.strip(UNKNOWN_TEXT) for word in words[1:])
            self.changed = False
        elif not programs.TRANSFORMERS.isdisjoint((name, name.rstrip("0123456789.-"))):
            self.spoken = self.spoken or any(text.strip() for text in simple.fed)
            self.changed = self.spoken and not _encodes(name, words)
        reads = simple.piped and (name in programs.CONSUMERS or name in wrappers.SHELLS)
        if self.spoken and self.changed and (reads or simple.feeds in ("substitution", "process")):
            self.computed = True

    def _assignment(self, word: Word, depth: int) -> None:
        super()._assignment(word, depth)
        name, _, value = word.text.partition("=")
        base = name.rstrip("+").partition("[")[0]
        before = self.variables.get(base, ()) if name.endswith("+") else ()
        self._set(base, [value, *(known + value for known in before)])
        self._word(value)
        self._hosts("curl" if name.lower().endswith("_proxy") else "", value)

    def _set(self, name: str, values: Sequence[str]) -> None:
        known = () if name in _KNOWN else self.variables.get(name, ())
        self.variables[name] = tuple(dict.fromkeys((*known, *values)))[:MAX_TEXTS] or (UNKNOWN_TEXT,)

    def run(self, words: Sequence[Word], simple: SimpleCommand, depth: int) -> None:
        super().run(words, simple, depth)
        name = program_name(words[0].text)
        self.complete = self.complete and UNKNOWN_TEXT not in words[0].text
        if "/" in words[0].text:
            self._word(words[0].text, sure=not words[0].text.startswith(("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/")))
        args = [word.text for word in words[1:]]
        if name in programs.CHANGES_FOLDER:
            self._change_folder(args, simple)
        elif name in programs.SPEAKERS and args[:1] != ["-v"]:
            self._speak([words[0].text, *args], words[1:], simple)
        else:
            self._remember(name, args, simple)
            self._take(name, args, simple)

    def _see_through(self, name: str, args: tuple[Word, ...], simple: SimpleCommand, depth: int) -> None:
        before = dict(self.paths)
        super()._see_through(name, args, simple, depth)
        if is_inside(name, [word.text for word in args]):
            # What runs in a container has files of its own; what it gets of ours is mounted.
            self.paths = before

    def _change_folder(self, args: list[str], simple: SimpleCommand) -> None:
        target = next((arg for arg in args if not arg.startswith("-")), "-" if "-" in args else "~")
        self._word(target)
        if target == "-" or UNKNOWN_TEXT in target:
            self.complete = False
            return
        folders = [folder for folder in self.folders if folder is not None]
        absolute = target.startswith(("/", "~"))
        found: list[str | None] = [target] if absolute or not folders else [join(folder, target) for folder in folders]
        keeps = simple.feeds or not absolute
        # The newest first: an allow judges by it alone while every `&&` before was crossed.
        self.certain = absolute and not simple.feeds
        self.folders = [*found, *self.folders][:_MAX_FOLDERS] if keeps or self.folders != [None] else [*found, None]

    def _speak(self, said: list[str], words: Sequence[Word], simple: SimpleCommand) -> None:
        """Take what is said only where something reads it, and what a glob lists."""
        for word in words:
            if simple.feeds or (word.dynamic and is_glob(word.text)):
                self._word(word.text, sure=False)
        text = spoken_text(said)
        if simple.feeds and text:
            self._word(text, sure=False)
            self.piped_words = text.split()[:MAX_TEXTS]

    def _remember(self, name: str, args: list[str], simple: SimpleCommand) -> None:
        if name in ("export", "declare", "typeset", "local", "readonly", "env", "set"):
            for i, arg in enumerate(arg for arg in args if not arg.startswith("-")):
                variable, equals, value = arg.partition("=")
                if equals:
                    self._set(variable.rstrip("+"), [value])
                elif name == "set":
                    self._set(str(i + 1), [arg])
                    self._set("@", [arg])
        elif name in ("read", "mapfile", "readarray"):
            for arg in args:
                if not arg.startswith("-"):
                    self._set(arg, list(simple.fed) or [UNKNOWN_TEXT])
        elif name == "printf" and args[:1] == ["-v"] and len(args) > 2:
            self._set(args[1], [spoken_text(["printf", *args[2:]]) or UNKNOWN_TEXT])

    def _take(self, name: str, args: list[str], simple: SimpleCommand) -> None:
        """Take the words of a program as paths and hosts."""
        base = name.rstrip("0123456789.-")
        for text in args:
            self._hosts(name, text)
        if base in wrappers.INTERPRETERS:
            for text in (*args, *simple.fed):
                self._literals(text, sed=base.endswith("sed"))
        elif name in programs.CONSUMERS or name in wrappers.FED:
            # What is piped into `xargs` becomes words of the program behind it.
            reads = name in ("xargs", "parallel") and any(program_name(arg) in READERS for arg in args)
            for text in (*simple.fed, *(self.piped_words if simple.piped else ())):
                self._word(text, sure=False, write=not reads)
        before = list(self.folders)
        for option, value in pairwise(args):
            if option in programs.FOLDER_OPTIONS:
                self.folders = [*(_joined(folder, value) for folder in self.folders), *self.folders][:_MAX_FOLDERS]
        everything = name in programs.TAKES_ALL or _has_letter(args, programs.TAKES_ALL_WITH.get(name, ""))
        everything = everything or (
            name == "find" and any(arg in wrappers.EXECUTING or arg == "-delete" for arg in args)
        )
        written = written_words(name, args)
        places = local_words(name, args, listed=not simple.feeds)
        for text in self._path_words(base, places):
            self._word(text, everything=everything, write=text in written.words)
        for text in written.made:
            self._word(text, sure=False, write=True)
        self.folders = before

    def _path_words(self, name: str, places: Iterable[str]) -> Iterator[str]:
        """Return the words that may be paths: not prose, and not the pattern of a search."""
        args = list(places)
        pattern = name in programs.PATTERN_FIRST and not any(arg.startswith(programs.PATTERN_OPTIONS) for arg in args)
        prose = False
        for arg in args:
            if prose:
                prose = False
            elif arg in programs.PROSE and name in ("git", "gh", "glab", "hg", "svn", "jj"):
                prose = True
            elif pattern and not arg.startswith("-"):
                pattern = False
            else:
                yield arg

    def _literals(self, code: str, *, sed: bool = False) -> None:
        """Take the paths and URLs that code for an interpreter holds as literals."""
        self.complete = False
        for text in (code, _JOINED_LITERALS.sub("", code)):
            for match in _CODE_PATH.finditer(text[:65_536]):
                self._word(match[0], sure=False, write=not sed)
            for match in _URL.finditer(text):
                self.hosts[match[0]] = None
        if sed:
            for match in _SED_FILE.finditer(code):
                self._word(match[2], sure=False, write=match[1] in "wW")
        if any(maker in code for maker in _MAKERS):
            self.computed = True

    def _hosts(self, name: str, text: str) -> None:
        if UNKNOWN_TEXT in text:
            self.complete = self.complete and name not in programs.NETWORK
            text = text.replace(UNKNOWN_TEXT, "")
        for match in _URL.finditer(text):
            self.hosts[match[0]] = None
        for match in _DEV.finditer(text):
            self.hosts[match[1]] = None
        if name in programs.NETWORK and not text.startswith(("/", ".", "~")):
            value = text.partition("=")[2] if text.startswith("--") else "" if text.startswith("-") else text
            if value and not any(mark in value for mark in '{}*"\n '):
                self.hosts[value.removeprefix("@")] = None
                self.hosts[value.partition("::")[0]] = None

    def _word(self, text: str, *, sure: bool = True, everything: bool = False, write: bool = False) -> None:
        """Take a word as a path, and the paths inside it."""
        for match in _DEV.finditer(text):
            self.hosts[match[1]] = None
        is_option = text.startswith("-") and text != "-"
        whole = text.partition("=")[2] if is_option else text
        if whole:
            self._add(whole, sure=sure and not _is_number(whole), everything=everything, write=write)
        parts = [part for part in _SPLIT.split(text)[:_MAX_PARTS] if part and part != whole]
        if is_option and not text.startswith("--"):
            parts += [text[2:], *(text[i:] for i in (text.find("/"), text.find("~")) if i > 0)]
        for part in parts:
            if part.startswith(("/", "~", UNKNOWN_TEXT)) or (not part.startswith("-") and self.folders != [None]):
                self._add(part, sure=False, everything=everything, write=write)

    def _add(self, text: str, *, sure: bool, everything: bool, write: bool) -> None:
        if UNKNOWN_TEXT in text:
            self.complete = False
            sure = False
        for known in _known_forms(text):
            absolute = known.startswith(("/", "~"))
            for i, folder in enumerate([None] if absolute else self.folders):
                certain = sure and (i == 0 or not self.certain)
                self.paths[CommandPath(known, folder, certain, write)] = None
                # Not written: `rm -r .git` plants nothing in .git/hooks.
                if everything and (absolute or folder is not None):
                    self.paths[CommandPath(known.rstrip("/") + "/**", folder, certain)] = None


def _known_forms(text: str) -> Iterator[str]:
    """Return what a text with unknown parts may be: without them, with `/` for each, and with globs for each."""
    if UNKNOWN_TEXT not in text:
        if text:
            yield text
        return
    if not text.strip(UNKNOWN_TEXT + "/"):
        return
    yield text.replace(UNKNOWN_TEXT, "")
    yield text.replace(UNKNOWN_TEXT, "/")
    if not text.startswith(UNKNOWN_TEXT):
        *folders, last = text.split("/")
        end = "**" if UNKNOWN_TEXT in last else last
        yield "/".join([*(folder.replace(UNKNOWN_TEXT, "*") for folder in folders), end])


def _encodes(name: str, words: Sequence[Word]) -> bool:
    return name in programs.ENCODERS and not any(word.text.lower().startswith(("-d", "--d")) for word in words[1:])


def _joined(folder: str | None, target: str) -> str:
    return target if folder is None else join(folder, target)


def _has_letter(args: Sequence[str], letters: str) -> bool:
    given = "".join(arg for arg in args if arg.startswith("-") and not arg.startswith("--"))
    return any(letter in given for letter in letters) or any(
        arg.startswith(("--recurs", "--archive", "--derefer")) for arg in args if letters
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("-", "").isdecimal()
