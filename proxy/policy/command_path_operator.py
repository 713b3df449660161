"""The operators `command_path_under` and `command_host_in`: files and hosts in a command line. Pure, no I/O.

A deny matches if one path or host of the line fits. An allow needs every one of them, and a line that hides none.
"""

from __future__ import annotations

import re
from functools import partial
from posixpath import join
from typing import TYPE_CHECKING, Any, Final

from proxy.policy.command_paths import CommandPath, CommandPaths, read_argv_paths, read_command_paths
from proxy.policy.conditions import as_tuple
from proxy.policy.eval_context import NOTHING
from proxy.policy.home import UNKNOWN_HOMES
from proxy.policy.host_operators import compile_hosts
from proxy.policy.hosts import UrlViews, read_url
from proxy.policy.path_operator import NO_PATHS, PathSet, merge_paths, under_roots
from proxy.policy.paths import GLOB_MARKS, PathViews, read_path
from proxy.policy.text import read_text
from proxy.policy.views import MAY, NO, YES, Test, WrongTypeError, gather, judge_each, make_views

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.policy.arg_path import ArgPath
    from proxy.policy.eval_context import EvalContext

# Stands for the folder that the server starts in. It is no glob and no name that a policy would hold.
_NO_PATH: Final = re.compile(r"~(?![\w.-]*(?:/|$))|\$")
_SOMEWHERE: Final = "/\ue001/"


def command_path_under(arg: ArgPath, operand: Any) -> Test:
    key = "command_paths:" + arg.text

    def paths_of(context: EvalContext) -> PathSet:
        paths: PathSet | None = context.memo.get(key)
        if paths is None:
            view = partial(view_command_paths, homes=context.homes)
            paths = NO_PATHS if arg.select(context) is NOTHING else merge_paths(make_views(arg, view, context))
            context.memo[key] = paths
        return paths

    return under_roots(paths_of, operand)


def command_host_in(arg: ArgPath, operand: Any) -> Test:
    wanted = compile_hosts(as_tuple(operand))

    def judge(view: UrlViews) -> int:
        if view.exact and all(map(wanted.must, view.exact)):
            return YES
        return MAY if any(map(wanted.may, view.hosts)) else NO

    return judge_each(gather(arg, "command_host", view_command_hosts), judge, with_problems=True)


def _read(value: Any) -> CommandPaths:
    """Return what a command line or an argv names, in every reading of the text."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return read_argv_paths(value)
    if not isinstance(value, str):
        raise WrongTypeError("a command line", value)
    first, *others = [read_command_paths(reading) for reading in read_text(value).readings]
    paths = (*first.paths, *(path._replace(sure=False) for other in others for path in other.paths))
    hosts = (*first.hosts, *(host for other in others for host in other.hosts))
    return CommandPaths(paths, hosts, first.problem, first.complete and not others)


def view_command_paths(value: Any, homes: tuple[str, ...] = UNKNOWN_HOMES) -> PathViews:
    """View a command line as all the paths that it names; `homes` are the folders that `~` may stand for."""
    command = _read(value)
    views = [(path, _view(path, homes)) for path in command.paths]
    sure = [view for path, view in views if path.sure]
    every = [view for _, view in views]
    problems = [view.problem for path, view in views if view.problem and not _is_no_path(path.text)]
    return PathViews(
        _united(view.exact for view in sure) if command.complete else (),
        _united(view.folded for view in every),
        _united(view.relative for view in sure) if command.complete else (),
        _united(view.globs for view in every),
        command.problem or (problems[0] if problems else None),
    )


def _is_no_path(text: str) -> bool:
    """Return whether a word only looks like a path that cannot be judged, as `~> 1.0` and `/dev/fd/0` do."""
    return _NO_PATH.match(text) is not None or "/fd/" in text


def _view(path: CommandPath, homes: tuple[str, ...]) -> PathViews:
    if path.folder is not None:
        return read_path(join(path.folder, path.text), homes)
    is_pattern = not GLOB_MARKS.isdisjoint(path.text) and ".." not in path.text
    if path.text.startswith(("/", "~")) or ("/" in path.text and not is_pattern):
        return read_path(path.text, homes)
    # `grep etc notes.txt` and `ls */` name no /etc: such a word counts from the root only after `cd /`.
    here = read_path(_SOMEWHERE + path.text)
    return here._replace(exact=(), relative=(path.text + "/",))


def _united(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for group in groups for text in group))


def view_command_hosts(value: Any) -> UrlViews:
    """View a command line as all the hosts that it names."""
    command = _read(value)
    views = [read_url(host) for host in command.hosts]
    exact = tuple(dict.fromkeys(host for view in views for host in view.exact)) if command.complete else ()
    hosts = tuple(dict.fromkeys(host for view in views for host in view.hosts))
    return UrlViews(exact, hosts, (), (), command.problem)
