"""The selectors of conditions: values by what they are, whatever their arguments are called. Pure, no I/O.

`@commands` are the values that are command lines, `@files` those that are paths, `@paths` these and the paths in the
command lines, `@written` those of them that the call may change, `@hosts` the values that are URLs or hosts and the
ones in the command lines.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.argument_names import ArgumentKind, argument_kind, tool_kind
from proxy.policy.command_paths import CommandPath, CommandPaths, read_command_paths
from proxy.policy.eval_context import (
    AMBIGUOUS,
    MAX_EMBEDDED,
    MAX_NODES,
    MAX_VALUES,
    NOTHING,
    EvalContext,
    Selection,
    Trouble,
    fold_key,
)
from proxy.policy.text import AmbiguousError, looks_like_json, parse_embedded_json, read_text
from proxy.policy.value_forms import (
    is_address,
    is_surely_command,
    looks_like_shell,
    may_be_path,
    path_in,
    runs_programs,
    starts_with_program,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# `~`, `~/x` and `~me/x`, but no `~> 1.0`.
_HOME: Final = re.compile(r"~[\w.-]*(?:/|$)")
_VERBS: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
# Command lines of one call that are searched for paths and hosts; more are ambiguous.
_MAX_COMMANDS: Final = 200


class _Text(NamedTuple):
    """One string of a call, what the name of its argument says, and whether it came under that very name."""

    kind: ArgumentKind
    text: str
    exact: bool
    listed: bool


class _Argv(NamedTuple):
    kind: ArgumentKind
    words: list[str]
    exact: bool


class _Texts(NamedTuple):
    """Every string of a call, and every list of strings that may be an argv."""

    texts: list[_Text]
    argvs: list[_Argv]
    paired: list[tuple[list[str], bool]]


_UNNAMED: Final = argument_kind("")
_LINE: Final = argument_kind("command")


def _texts(context: EvalContext) -> _Texts:
    """Return the strings of a call; computed once per call. Raise AmbiguousError where parsers would disagree."""
    found: _Texts | AmbiguousError | None = context.memo.get("@texts")
    if found is None:
        try:
            found = _collect(context.arguments)
        except AmbiguousError as error:
            found = error
        context.memo["@texts"] = found
    if isinstance(found, AmbiguousError):
        raise AmbiguousError(str(found))
    return found


def _collect(arguments: Any) -> _Texts:
    found = _Texts([], [], [])
    # A stack of our own: deep nesting must not raise RecursionError.
    stack: list[tuple[Any, ArgumentKind, bool, int, bool]] = [(arguments, _UNNAMED, True, 0, False)]
    seen = 0
    while stack:
        value, kind, exact, hops, listed = stack.pop()
        seen += 1
        if seen > MAX_NODES:
            raise AmbiguousError(f"more than {MAX_NODES} values")
        if isinstance(value, str):
            found.texts.append(_Text(kind, value, exact, listed))
            if looks_like_json(value) and hops < MAX_EMBEDDED and (inner := parse_embedded_json(value)) is not None:
                stack.append((inner, kind, False, hops + 1, listed))
        elif isinstance(value, dict):
            members = [(argument_kind(fold_key(key)), member) for key, member in value.items()]
            stack.extend([(m, k, exact, hops, False) for k, m in members if isinstance(m, str | dict | list)])
            _pair(members, exact, found)
        elif isinstance(value, list):
            strings = [element for element in value if isinstance(element, str)]
            if strings and len(strings) == len(value):
                found.argvs.append(_Argv(kind, strings, exact))
            stack.extend([(e, kind, exact, hops, True) for e in value if isinstance(e, str | dict | list)])
    return found


def _pair(members: list[tuple[ArgumentKind, Any]], exact: bool, found: _Texts) -> None:  # noqa: FBT001
    """Add the argv of `{command: sh, args: [-c, …]}`."""
    given = [value for kind, value in members if kind.arguments and isinstance(value, str | list)]
    if not given:
        return
    programs = [value for kind, value in members if kind.program and isinstance(value, str)]
    for program in programs:
        for value in given:
            words = [value] if isinstance(value, str) else [word for word in value if isinstance(word, str)]
            # A string of arguments is split by whoever runs it.
            argv = (
                [program, *value.split()] if isinstance(value, str) and "'" not in value and '"' not in value else None
            )
            found.paired.append((argv or [program, *words], exact))


def _commands(context: EvalContext) -> Selection:
    found = _texts(context)
    tool = tool_kind(context.tool)
    lines = [said for said in found.texts if _is_command(said, tool.runs, tool.other_language)]
    argvs = [(argv.words, argv.exact) for argv in found.argvs if _is_argv(argv, tool.runs)] + found.paired
    chosen: list[tuple[Any, bool]] = [*((said.text, said.exact) for said in lines), *argvs]
    return _select(chosen)


def _is_command(said: _Text, runs: bool, other_language: bool) -> bool:  # noqa: FBT001
    kind, text = said.kind, said.text
    if not text.strip():
        return False
    # The words of an argv are no lines of their own.
    if kind.command and (not said.listed or kind.command_list or is_surely_command(text)):
        return runs or (looks_like_shell(text) and not other_language) or is_surely_command(text)
    if (runs or kind.script) and runs_programs(text) and not (said.listed and " " not in text.strip()):
        return True
    return not kind.prose and " " in text and is_surely_command(text)


def _is_argv(argv: _Argv, runs: bool) -> bool:  # noqa: FBT001
    if argv.kind.command_list:
        return False
    if argv.kind.command:
        return True
    first = argv.words[0]
    return " " not in first and len(argv.words) > 1 and (runs or not argv.kind.prose) and starts_with_program(first)


def _paths(context: EvalContext) -> Selection:
    return _with_commands(context, SELECTORS["@files"](context), _says_where)


def _written(context: EvalContext) -> Selection:
    files = NOTHING if tool_kind(context.tool).reads else SELECTORS["@files"](context)
    return _with_commands(context, files, _is_written)


def _with_commands(context: EvalContext, files: Selection, chosen: Callable[[CommandPath], bool]) -> Selection:
    """Return `files` and the chosen paths of the command lines."""
    named, trouble = _in_commands(context, lambda found: map(_full_path, filter(chosen, found.paths)))
    if not named and trouble is None:
        return files
    own = [*((path, True) for path in files.exact), *((path, False) for path in files.loose)]
    return _select([*own, *((path, exact and sure) for (path, sure), exact in named)], trouble or files.trouble)


def _files(context: EvalContext) -> Selection:
    web = tool_kind(context.tool).web and _has_verb(context)
    chosen: list[tuple[str, bool]] = []
    for kind, text, exact, _ in _texts(context).texts:
        if kind.path and not web:
            chosen.append((text, exact))
        elif not kind.other_path and may_be_path(text):
            path = path_in(text)
            if path is None and kind.place and not is_address(text) and len(text.split()) == 1:
                path = text
            if path is not None and not (web and (kind.path or kind.host) and text.startswith("/")):
                chosen.append((path, exact))
    return _select(chosen)


def _is_written(path: CommandPath) -> bool:
    # A search such as `prettier --write "**/*.json"` means the files of a project.
    is_search = path.folder is None and path.text.partition("/")[0] in ("*", "**")
    return path.write and not is_search and _says_where(path)


def _says_where(path: CommandPath) -> bool:
    # `grep etc notes.txt` names no /etc: a bare word is a file of the folder that the server works in.
    if path.text[:1] == "~":
        return _HOME.match(path.text) is not None
    return path.folder is not None or "/" in path.text or (path.text[:1] == "." and not _is_expression(path.text))


def _is_expression(text: str) -> bool:
    """Return whether a bare word with marks is one for a program rather than a dot-file: `.*`, `.[0]`, `.a[]`."""
    return text[1:2] in ("*", "[", "")


def _full_path(path: CommandPath) -> tuple[str, bool]:
    folder = path.folder
    if folder is not None and path.text[:1] not in ("/", "~", "$"):
        return f"{folder.rstrip('/')}/{path.text}", path.sure
    return path.text, path.sure


def _has_verb(context: EvalContext) -> bool:
    return any(isinstance(value, str) and value.upper() in _VERBS for value in context.arguments.values())


def _hosts(context: EvalContext) -> Selection:
    chosen = [
        (s.text, s.exact) for s in _texts(context).texts if (s.kind.host and not s.kind.prose) or is_address(s.text)
    ]
    named, trouble = _in_commands(context, lambda found: found.hosts)
    return _select([*chosen, *named], trouble)


def _in_commands[T](
    context: EvalContext, read: Callable[[CommandPaths], Iterable[T]]
) -> tuple[list[tuple[T, bool]], Trouble | None]:
    """Return what `read` finds in each command line of a call."""
    selection = SELECTORS["@commands"](context)
    if selection is NOTHING:
        return [], None
    trouble = selection.trouble
    lines = [*((line, True) for line in selection.exact), *((line, False) for line in selection.loose)]
    if len(lines) > _MAX_COMMANDS:
        trouble, lines = Trouble(AMBIGUOUS, f"more than {_MAX_COMMANDS} command lines"), []
    found: list[tuple[T, bool]] = []
    for line, exact in lines:
        named = _named(context, line)
        found.extend((part, exact) for part in read(named))
        if named.problem is not None:
            trouble = Trouble(AMBIGUOUS, named.problem)
    return found, trouble


def _named(context: EvalContext, line: str | list[str]) -> CommandPaths:
    known: dict[str, CommandPaths] = context.memo.setdefault("@named", {})
    key = line if isinstance(line, str) else "\0".join(line)
    if key not in known:
        # An argv is run as it is; some servers join it and hand it to a shell.
        readings = read_text(line).readings if isinstance(line, str) else (shlex.join(line), " ".join(line))
        first, *others = map(read_command_paths, readings)
        paths = (*first.paths, *(path._replace(sure=False) for other in others for path in other.paths))
        hosts = (*first.hosts, *(host for other in others for host in other.hosts))
        known[key] = first._replace(paths=paths, hosts=hosts)
    return known[key]


def _select(chosen: list[tuple[Any, bool]], trouble: Trouble | None = None) -> Selection:
    if not chosen and trouble is None:
        return NOTHING
    if len(chosen) > MAX_VALUES:
        return Selection((), (), Trouble(AMBIGUOUS, f"more than {MAX_VALUES} values"))
    return Selection(
        tuple([v for v, exact in chosen if exact]), tuple([v for v, exact in chosen if not exact]), trouble
    )


def _once(key: str, select: Callable[[EvalContext], Selection]) -> Callable[[EvalContext], Selection]:
    def selected(context: EvalContext) -> Selection:
        found: Selection | None = context.memo.get(key)
        if found is None:
            try:
                found = select(context)
            except AmbiguousError as error:
                found = Selection((), (), Trouble(AMBIGUOUS, str(error)))
            context.memo[key] = found
        return found

    return selected


SELECTORS: Final[dict[str, Callable[[EvalContext], Selection]]] = {
    "@commands": _once("=@commands", _commands),
    "@files": _once("=@files", _files),
    "@paths": _once("=@paths", _paths),
    "@written": _once("=@written", _written),
    "@hosts": _once("=@hosts", _hosts),
}
