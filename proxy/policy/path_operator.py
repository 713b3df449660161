"""`path_under`: is the value one of these folders, or inside one? Pure, no I/O.

Roots may hold globs: `*` within a component, `**` for any number of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.policy.arg_path import AMBIGUOUS, NOTHING, Trouble
from proxy.policy.conditions import as_tuple
from proxy.policy.path_fastpath import read_plain_path
from proxy.policy.path_roots import reach_of, read_root
from proxy.policy.paths import PathViews, read_path
from proxy.policy.regex import compile_search, escape
from proxy.policy.views import WrongTypeError, gather

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.policy.arg_path import ArgPath, EvalContext, Selection
    from proxy.policy.views import Views


class PathSet(NamedTuple):
    """Every path that one `arg` names, over all its values.

    `plain` is the one folded path where there is nothing else to look at. `may_reach` says whether
    one of the patterns may name something under a root: they are taken apart once for all rules.
    """

    folded: tuple[str, ...]
    exact: tuple[str, ...]
    relative: tuple[str, ...]
    sure: bool
    trouble: Trouble | None
    plain: str | None = None
    may_reach: Callable[[str], bool] | None = None


_NO_PATHS: Final = PathSet((), (), (), False, None)


def view_path(value: Any) -> PathViews:
    """View a string as a path."""
    if not isinstance(value, str):
        raise WrongTypeError("a path", value)
    return read_path(value)


def _plain_paths(selection: Selection) -> PathSet | None:
    """Take the short way where all that was found is one string that has one reading."""
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
    views = gather(arg, "path", view_path)
    key = "paths:" + arg.text

    def paths_of(context: EvalContext) -> PathSet:
        paths: PathSet | None = context.memo.get(key)
        if paths is None:
            selection = arg.select(context)
            if selection is NOTHING:
                return _NO_PATHS
            paths = context.memo[key] = _plain_paths(selection) or _merge(views(context))
        return paths

    return paths_of


def _merge(views: Views) -> PathSet:
    items: tuple[PathViews, ...] = views.items
    extra: tuple[PathViews, ...] = views.extra
    trouble = views.trouble
    for item in items:
        if item.problem:
            trouble = Trouble(AMBIGUOUS, item.problem)
    everything = (*items, *extra)
    globs = dict.fromkeys(path for item in everything for path in item.globs)
    searches = dict.fromkeys(path for item in everything for path in item.searches)
    return PathSet(
        tuple(dict.fromkeys(path for item in everything for path in item.folded)),
        tuple(dict.fromkeys(path for item in items for path in item.exact)),
        tuple(dict.fromkeys(path for item in items for path in item.relative)),
        views.sure and all(item.exact or item.relative for item in items),
        trouble,
        may_reach=reach_of(globs, searches) if globs or searches else None,
    )


class RootSet(NamedTuple):
    """The folders of one `path_under`, ready to compare; `globs` are those with marks, without case."""

    exact: tuple[str, ...]
    folded: tuple[str, ...]
    relative: tuple[str, ...]
    exact_glob: Callable[[str], bool] | None
    folded_glob: Callable[[str], bool] | None
    globs: tuple[str, ...]

    def hold(self, path: str) -> bool:
        """Return whether an absolute path is under one of them."""
        return path.startswith(self.exact) or (self.exact_glob is not None and self.exact_glob(path))

    def hold_relative(self, path: str) -> bool:
        """Return whether a path that hangs on the server's folder is under one of them."""
        if path == "../":
            return False
        return any(root == "./" or path.startswith(root[2:]) for root in self.relative)


def path_under(arg: ArgPath, operand: Any) -> Callable[[EvalContext], int]:
    """Compile `path_under`."""
    roots = compile_roots(as_tuple(operand))
    paths_of = gather_paths(arg)
    folded_roots = roots.folded
    simple = roots.folded_glob is None and not roots.relative

    def test(context: EvalContext) -> int:
        paths = paths_of(context)
        if paths is _NO_PATHS:
            return 0
        if simple and paths.plain is not None:
            return _how_sure(paths, roots, context) if paths.plain.startswith(folded_roots) else 0
        for path in paths.folded:
            if path.startswith(folded_roots):
                return _how_sure(paths, roots, context)
        if simple and paths.trouble is None and paths.may_reach is None:
            return 0
        if _may_by_pattern(paths, roots):
            return _how_sure(paths, roots, context)
        return 0 if paths.trouble is None else context.give_up(paths.trouble)

    return test


def _may_by_pattern(paths: PathSet, roots: RootSet) -> bool:
    if roots.folded_glob is not None and any(map(roots.folded_glob, paths.folded)):
        return True
    if any(roots.hold_relative(path) for path in paths.relative):
        return True
    return paths.may_reach is not None and any(map(paths.may_reach, roots.folded))


def _how_sure(paths: PathSet, roots: RootSet, context: EvalContext) -> int:
    if paths.trouble is not None:
        return 1 | context.give_up(paths.trouble)
    must = paths.sure and all(map(roots.hold, paths.exact)) and all(map(roots.hold_relative, paths.relative))
    return 3 if must else 1


def compile_roots(operand: tuple[str, ...]) -> RootSet:
    """Compile the folders of one `path_under`."""
    roots = [read_root(root) for root in operand]
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
    """Turn a root with globs, ending in `/`, into an RE2 expression."""
    out = []
    for part in glob[1:-1].split("/"):
        if part == "**":
            out.append("(?:[^/]+/)*")
        else:
            out.append("".join({"*": "[^/]*", "?": "[^/]"}.get(c) or escape(c) for c in part) + "/")
    return "/" + "".join(out)
