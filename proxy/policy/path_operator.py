"""The `path_under` operator: whether a value names one of the given folders, or something inside. Pure, no I/O.

Folders may hold globs: `*` within a component, `**` for any number of components. `!/etc/os-release` is an exception.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.conditions import as_tuple
from proxy.policy.eval_context import AMBIGUOUS, NOTHING, EvalContext, Selection, Trouble
from proxy.policy.home import UNKNOWN_HOMES, expand_home
from proxy.policy.path_fastpath import read_plain_path
from proxy.policy.paths import GLOB_MARKS, PathViews, join_parts, read_path, search_endings
from proxy.policy.regex import compile_search, escape
from proxy.policy.views import MAY, NO, YES, Test, Views, WrongTypeError, make_views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from proxy.policy.arg_path import ArgPath


class PathSet(NamedTuple):
    """Every path that one `arg` names, over all its values.

    `plain` is the folded path where there is only one. `may_reach` returns whether one of the
    patterns may name something under a root; they are split once for all rules.
    """

    folded: tuple[str, ...]
    exact: tuple[str, ...]
    relative: tuple[str, ...]
    sure: bool
    trouble: Trouble | None
    plain: str | None = None
    may_reach: Callable[[str], bool] | None = None


# Of a pattern; a longer one counts as if it named everything.
_MAX_PARTS: Final = 100
NO_PATHS: Final = PathSet((), (), (), False, None)


def view_path(value: Any, homes: tuple[str, ...] = UNKNOWN_HOMES) -> PathViews:
    if not isinstance(value, str):
        raise WrongTypeError("a path", value)
    return read_path(value, homes)


def _plain_paths(selection: Selection) -> PathSet | None:
    """Return the paths of a selection that is one string with one reading; None for any other."""
    exact, loose, trouble = selection
    if len(exact) != 1 or loose or trouble is not None or type(exact[0]) is not str:
        return None
    path = read_plain_path(exact[0])
    if path is None:
        return None
    folded = path.lower()
    if exact[0][0] == "/":
        return PathSet((folded,), (path,), (), True, None, folded)
    return PathSet((folded,), (), (path[1:],), True, None)


def gather_paths(arg: ArgPath) -> Callable[[EvalContext], PathSet]:
    """Return the function that finds, once per call, the paths that `arg` names."""
    key = "paths:" + arg.text

    def paths_of(context: EvalContext) -> PathSet:
        paths: PathSet | None = context.memo.get(key)
        if paths is None:
            selection = arg.select(context)
            if selection is NOTHING:
                return NO_PATHS
            view = partial(view_path, homes=context.homes)
            paths = context.memo[key] = _plain_paths(selection) or merge_paths(make_views(arg, view, context))
        return paths

    return paths_of


def merge_paths(views: Views) -> PathSet:
    """Return the paths of all views of a call as one set."""
    items: tuple[PathViews, ...] = views.items
    extra: tuple[PathViews, ...] = views.extra
    problems = [item.problem for item in items if item.problem]
    everything = (*items, *extra)
    globs = dict.fromkeys(path for item in everything for path in item.globs)
    searches = dict.fromkeys(path for item in everything for path in item.searches)
    return PathSet(
        tuple(dict.fromkeys(path for item in everything for path in item.folded)),
        tuple(dict.fromkeys(path for item in items for path in item.exact)),
        tuple(dict.fromkeys(path for item in items for path in item.relative)),
        views.sure and all(item.exact or item.relative for item in items),
        Trouble(AMBIGUOUS, problems[-1]) if problems else views.trouble,
        may_reach=reach_of(globs, searches) if globs or searches else None,
    )


class RootSet(NamedTuple):
    """The compiled folders of one `path_under`; `globs` are those with marks, `spared` the exceptions, without case."""

    exact: tuple[str, ...]
    folded: tuple[str, ...]
    relative: tuple[str, ...]
    exact_glob: Callable[[str], bool] | None
    folded_glob: Callable[[str], bool] | None
    globs: tuple[str, ...]
    spared: RootSet | None = None

    def hold(self, path: str) -> bool:
        held = path.startswith(self.exact) or (self.exact_glob is not None and self.exact_glob(path))
        return held and not self.spare(path.casefold())

    def spare(self, path: str) -> bool:
        """Return whether a folded path is under an exception; a pattern never is, because it may name more."""
        spared = self.spared
        if spared is None or not GLOB_MARKS.isdisjoint(path):
            return False
        return path.startswith(spared.folded) or (spared.folded_glob is not None and spared.folded_glob(path))

    def hold_relative(self, path: str) -> bool:
        # "../" has left the server's folder, so not even `.` holds it.
        return path != "../" and any(root == "./" or path.startswith(root[2:]) for root in self.relative)


def path_under(arg: ArgPath, operand: Any) -> Test:
    return under_roots(gather_paths(arg), operand)


def under_roots(paths_of: Callable[[EvalContext], PathSet], operand: Any) -> Test:
    """Return the test whether the paths of a call are under one of the folders of `operand`."""
    roots = compile_roots(as_tuple(operand))
    folded_roots = roots.folded
    simple = roots.folded_glob is None and not roots.relative and roots.spared is None

    def test(context: EvalContext) -> int:
        paths = paths_of(context)
        if paths is NO_PATHS:
            return NO
        if simple and paths.plain is not None:
            return _how_sure(paths, roots, context) if paths.plain.startswith(folded_roots) else NO
        for path in paths.folded:
            if path.startswith(folded_roots) and not roots.spare(path):
                return _how_sure(paths, roots, context)
        if roots.folded_glob is None and not roots.relative and paths.trouble is None and paths.may_reach is None:
            return NO
        if _may_by_pattern(paths, roots):
            return _how_sure(paths, roots, context)
        return NO if paths.trouble is None else context.give_up(paths.trouble)

    return test


def _may_by_pattern(paths: PathSet, roots: RootSet) -> bool:
    glob = roots.folded_glob
    if glob is not None and any(glob(path) and not roots.spare(path) for path in paths.folded):
        return True
    if any(roots.hold_relative(path) for path in paths.relative):
        return True
    return paths.may_reach is not None and any(map(paths.may_reach, (*roots.folded, *roots.globs)))


def _how_sure(paths: PathSet, roots: RootSet, context: EvalContext) -> int:
    if paths.trouble is not None:
        return MAY | context.give_up(paths.trouble)
    # An allow compares with case: /WORK and /work are two folders on Linux.
    must = paths.sure and all(map(roots.hold, paths.exact)) and all(map(roots.hold_relative, paths.relative))
    return YES if must else MAY


def compile_roots(operand: tuple[str, ...]) -> RootSet:
    spared = tuple(root[1:] for root in operand if root.startswith("!"))
    wanted = [root for root in operand if not root.startswith("!")]
    # A root below `~` is protected in every place where a home may be.
    roots = [read_root(place) for root in wanted for place in expand_home(root, UNKNOWN_HOMES[:-1]) or (root,)]
    plain = tuple(r for r in roots if r.startswith("/") and not _is_glob(r))
    globs = [r if r.startswith("/") else "/**/" + r[2:] for r in roots if _is_glob(r)]
    folded_globs = [g.casefold() for g in globs]
    return RootSet(
        plain,
        tuple(r.casefold() for r in plain),
        tuple(r for r in roots if r.startswith("./") and not _is_glob(r)),
        glob_search(globs),
        glob_search(folded_globs),
        tuple(folded_globs),
        compile_roots(spared) if spared else None,
    )


def _is_glob(root: str) -> bool:
    return "*" in root or "?" in root


def glob_search(globs: Sequence[str]) -> Callable[[str], bool] | None:
    """Return the test whether a path is under one of `globs`; None where there are none."""
    if not globs:
        return None
    pattern = "|".join(_translate(glob) for glob in globs)
    return compile_search(f"^(?s:{pattern})")


def _translate(glob: str) -> str:
    """Return the RE2 expression of a root with globs that ends in `/`."""
    marks = {"*": "[^/]*", "?": "[^/]"}
    return "/" + "".join(
        "(?:[^/]+/)*" if part == "**" else "".join(marks.get(c) or escape(c) for c in part) + "/"
        for part in glob[1:-1].split("/")
    )


def read_root(root: str) -> str:
    """Return a folder of a policy in the form that paths are compared with.

    Only separators, `.` and `..` are resolved: a policy's author hides nothing. Relative
    folders (`.`, `src`) cover paths relative to the server's directory.
    """
    text = root.replace("\\", "/")
    drive = text[1:2] == ":"
    parts: list[str] = []
    for part in text.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    if drive:
        parts[0] = parts[0][0].upper() + ":"
    return ("" if drive or text.startswith("/") else ".") + join_parts(tuple(parts))


def reach_of(globs: Iterable[str], searches: Iterable[str]) -> Callable[[str], bool]:
    """Return the test whether one of these folded patterns may name something under a folded root."""
    absolute = [_parts(pattern) for pattern in globs]
    patterns = [*absolute, *map(_parts, searches)]
    relative = [(folders, tuple(f".{e}" for e in search_endings(last))) for *folders, last in map(_parts, searches)]

    def may_reach(root: str) -> bool:
        wanted = _parts(root)
        if _is_glob(root):
            return any(_globs_may_meet(given, wanted) for given in patterns)
        if any(_glob_may_reach(given, wanted) for given in absolute):
            return True
        # Only where the search names a part of the root: that it might start at `/` does not count.
        return any(name in folders or name.endswith(endings) for folders, endings in relative for name in wanted)

    return may_reach


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _glob_may_reach(given: list[str], wanted: list[str]) -> bool:
    for i, part in enumerate(wanted):
        if i >= len(given):
            return False
        if given[i].startswith("**"):
            return True
        if not _component_may_match(given[i], part):
            return False
    return True


def _globs_may_meet(given: list[str], wanted: list[str]) -> bool:
    """Return whether a pattern may name something under a root that is a pattern itself.

    `*` and `**` alone, which agents send all day, do not count as the names in a root: `src/**` is not `/**/.ssh`.
    """
    if len(given) > _MAX_PARTS:
        return True
    # The roots' parts that may come next: as an automaton, so that no input makes this slow.
    states = {0}
    for part in given:
        states = _skip_deep(states, wanted)
        if len(wanted) in states:
            return True
        after = {i + 1 for i in states if i < len(wanted) and _parts_may_meet(part, wanted[i])}
        states = after | {i for i in states if i < len(wanted) and "**" in (part, wanted[i])}
    return len(wanted) in _skip_deep(states, wanted)


def _skip_deep(states: set[int], wanted: list[str]) -> set[int]:
    return states | {i + 1 for i in states if i < len(wanted) and wanted[i] == "**"}


def _parts_may_meet(given: str, wanted: str) -> bool:
    if not wanted.strip("*?"):
        return wanted != "**"
    if GLOB_MARKS.isdisjoint(given):
        return _component_may_match(wanted, given)
    if not given.strip("*?"):
        return False
    if not _is_glob(wanted):
        return _component_may_match(given, wanted)
    # Two patterns: they may meet unless their beginnings or their ends differ.
    heads, tails = zip(_literal_ends(given), _literal_ends(wanted), strict=True)
    short_head, long_head = sorted(heads, key=len)
    short_tail, long_tail = sorted(tails, key=len)
    return long_head.startswith(short_head) and long_tail.endswith(short_tail)


def _literal_ends(pattern: str) -> tuple[str, str]:
    marks = [i for i, c in enumerate(pattern) if c in "*?]}[{"]
    return pattern[: marks[0]], pattern[marks[-1] + 1 :]


def _component_may_match(pattern: str, name: str) -> bool:
    if GLOB_MARKS.isdisjoint(pattern):
        return pattern == name
    head, tail = _literal_ends(pattern)
    if not (name.startswith(head) and name.endswith(tail)):
        return False
    inner = pattern.replace("}", "{").split("{")
    # `*.{ts,tsx}`: one of the endings must fit. Braces in braces may be anything.
    if len(inner) != 3 or "[" in pattern:
        return True
    before, choices, behind = inner
    return any(_component_may_match(before + choice + behind, name) for choice in choices.split(","))
