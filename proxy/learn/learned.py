"""Makes a profile of what a server was seen to do: each line with the evidence for it. Pure.

What a probe blames, and every secret, is left out and listed apart: a profile that is learned from a bad server must
not permit what is bad about it.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.learn.generalise import Places, generalise, is_below
from proxy.sandbox.path_globs import compile_path
from proxy.sandbox.profile import PRESETS, SandboxProfile, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from proxy.learn.acts import Act, Acts

# Programs that show which preset a server needs.
PROGRAMS = {
    "node": ("node", "npm", "npx", "bun", "bunx", "deno"),
    "python": ("python", "python3", "uv", "uvx", "pipx"),
    "git": ("git",),
    "browser": ("chromium", "chrome", "google-chrome", "headless_shell", "chrome-headless-shell"),
}
SYSTEM_PROGRAMS = ("/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin")
MAX_TOLD = 3
# What a profile reads as more than one name: a server may look up "*.com", or make a file of that name.
_MARKS = re.compile(r"[*?\[$\x00-\x1f\x7f]|(?:\A|/)\.\.(?:/|\Z)")
_VARIABLE = re.compile(r"\A\$[A-Z]+(?=/|\Z)")
_HOST = re.compile(r"(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[1-9][0-9]{0,4})?")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a profile, and why it is there."""

    value: str
    evidence: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An act that the profile does not permit, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class LearnedProfile:
    server: str
    source: str  # "a probe", "the trail"
    extends: tuple[Line, ...] = ()
    sections: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)  # read, write, exec, sockets, env
    network: tuple[Line, ...] = ()
    any_host: Line | None = None
    tools: tuple[Line, ...] = ()  # whose files are those that the arguments name
    left_out: tuple[LeftOut, ...] = ()
    seen: int = 0


def learn(
    acts: Acts,
    places: Places,
    presets: Mapping[str, SandboxProfile],
    *,
    server: str,
    source: str,
    env: Iterable[str] = (),
    bind: bool = False,
) -> LearnedProfile:
    """Return the profile that permits `acts`, but for what is blamed or secret."""
    good = [act for act in acts if act.blamed is None and not _is_closed(act, places)]
    extends = _extends(good)
    given = merge([presets[name] for name in ("base", *(line.value for line in extends))])
    broad = [act for act in good if act.kind in ("read", "write") and places.is_broad(act.target)]
    left = sorted([*_left_out(acts, places), *_too_broad(broad, places, given)], key=lambda each: each.why)
    good = [act for act in good if act not in broad]
    write = _paths([act for act in good if act.kind == "write"], places, given.write)
    readable = [*given.read, *given.write, *(line.value for line in write)]
    sections = {
        "read": _paths([act for act in good if act.kind == "read"], places, readable),
        "write": write,
        "exec": _programs([act for act in good if act.kind == "exec"], places, given),
        "sockets": _sockets([act for act in good if act.kind == "socket"], places, given.sockets),
        "env": tuple(Line(name, "passed by --env") for name in env if name not in given.env),
    }
    hosts = [act for act in good if act.kind == "reach"]
    named = [act for act in hosts if act.from_arguments]
    return LearnedProfile(
        server=server,
        source=source,
        extends=extends,
        sections=sections,
        network=_hosts([act for act in hosts if not act.from_arguments]),
        any_host=Line("any", f"{told(named[0])}: the arguments name the host") if named else None,
        tools=_bound_tools(good, named, places) if bind else (),
        left_out=tuple(dict.fromkeys(left)),
        seen=sum(act.count for act in acts),
    )


def told(act: Act, *more: Act) -> str:
    """Return who did it and how often, in a few words."""
    total = act.by.copy()
    for other in more:
        total += other.by
    shown = [f"{tool}: {count}" for tool, count in total.most_common(MAX_TOLD)]
    rest = len(total) - len(shown)
    return ", ".join(shown) + (f" and {rest} more tools" if rest else "")


def _left_out(acts: Acts, places: Places) -> Iterable[LeftOut]:
    blamed: dict[tuple[str, str], dict[str, Act]] = {}
    for act in acts:
        what = f"{act.kind} {act.target}, {told(act)}"
        if act.blamed is not None:
            blamed.setdefault((act.kind, act.blamed), {})[act.target] = act
        elif act.kind in ("read", "write") and places.is_secret(act.target):
            yield LeftOut(what, "a secret: name it under `secrets:` if the server must read it")
        elif act.kind == "socket" and act.target.startswith("@"):
            yield LeftOut(what, "abstract sockets cannot be permitted")
        elif _stands_for_others(act, places):
            yield LeftOut(what, "as a line it would not stand for itself alone")
    for (kind, rule), those in blamed.items():
        for name, group in _as_lines(kind, those, places):
            yield LeftOut(f"{kind} {name}, {told(*group)}", f"a probe blames it: {rule}")


def _as_lines(kind: str, acts: Mapping[str, Act], places: Places) -> Iterator[tuple[str, list[Act]]]:
    """Yield acts under what they have in common: files as a profile would name them, but each secret by itself."""
    files = [path for path in acts if kind in ("read", "write") and not places.is_secret(path)]
    lines = generalise(sorted(files), places)
    in_lines = {path for paths in lines.values() for path in paths}
    yield from ((line, [acts[path] for path in paths]) for line, paths in lines.items())
    yield from ((path, [act]) for path, act in acts.items() if path not in in_lines)


def _too_broad(acts: Sequence[Act], places: Places, given: SandboxProfile) -> Iterator[LeftOut]:
    covers = [*_tests((*given.read, *given.write), places)]
    for act in acts:
        if act.kind == "write" or not any(covered(act.target) for covered in covers):
            yield LeftOut(f"{act.kind} {act.target}, {told(act)}", "too broad: name what is in this folder")


def _is_closed(act: Act, places: Places) -> bool:
    closed = act.kind in ("read", "write") and places.is_secret(act.target)
    return closed or _stands_for_others(act, places)


def _stands_for_others(act: Act, places: Places) -> bool:
    """Return whether a profile would read what was touched as a pattern or a variable, or not at all."""
    if act.kind == "reach":
        return _HOST.fullmatch(act.target) is None
    if not act.target.startswith("/"):
        return True
    # A file with such a mark below `$ROOTS` is in a line without it. The "/**" of a line is ours, but of a file "**".
    lines = generalise([act.target], places) if act.kind in ("read", "write") else (act.target,)
    ours = "" if act.target.endswith("/**") else "/**"
    return any(_MARKS.search(_VARIABLE.sub("", line).removesuffix(ours)) for line in lines)


def _extends(acts: Sequence[Act]) -> tuple[Line, ...]:
    found = {}
    for act in acts:
        name = posixpath.basename(act.target).rstrip("0123456789.")
        for preset, programs in PROGRAMS.items():
            if act.kind == "exec" and name in programs and preset not in found:
                found[preset] = Line(preset, f"it runs {name}")
        # A script that names its interpreter is executed by its own name.
        if act.kind == "read" and "/lib/python3." in act.target and "python" not in found:
            found["python"] = Line("python", "it reads Python's library")
    return tuple(found[name] for name in PRESETS if name in found)


def _paths(acts: Sequence[Act], places: Places, given: Sequence[str]) -> tuple[Line, ...]:
    by_path = {act.target: act for act in acts}
    covers = [*_tests(given, places)]
    wanted = [path for path in by_path if not any(covered(path) for covered in covers)]
    lines = generalise(sorted(wanted), places, written=any(act.kind == "write" for act in acts))
    # $TMP and $PACKAGE are in `base`, by their variables.
    return tuple(
        Line(line, told(*(by_path[path] for path in paths)))
        for line, paths in sorted(lines.items())
        if line not in given
    )


def _sockets(acts: Sequence[Act], places: Places, given: Sequence[str]) -> tuple[Line, ...]:
    by_line: dict[str, list[Act]] = {}
    for act in acts:
        # Its own temporary folders: each run makes them anew.
        own = any(is_below(act.target, folder) for folder in places.tmp)
        by_line.setdefault("$TMP" if own else act.target, []).append(act)
    return tuple(Line(line, told(*those)) for line, those in by_line.items() if line not in given)


def _tests(lines: Iterable[str], places: Places) -> Iterator[Callable[[str], bool]]:
    """Return the tests whether a path is covered, in the home that the server saw and in the user's own."""
    for line in lines:
        for home in places.homes:
            if plain := _plain(line, places, home):
                yield compile_path(plain)


def _plain(line: str, places: Places, home: str) -> str:
    """Return a line of a preset for this server's places; empty where it has none."""
    for variable, folder in (("$HOME", home), ("~", home), ("$CWD", places.cwd)):
        if line == variable or line.startswith(f"{variable}/"):
            return f"{folder}{line[len(variable) :]}"
    return "" if line.startswith("$") else line


def _programs(acts: Sequence[Act], places: Places, given: SandboxProfile) -> tuple[Line, ...]:
    names = {line for line in given.exec if "/" not in line}
    covers = [*_tests([line for line in given.exec if "/" in line], places)]
    found: dict[str, list[Act]] = {}
    for act in acts:
        folder, name = posixpath.split(act.target)
        # What the server's own package holds is its own to start; so is the program that starts it.
        if any(is_below(act.target, each) for each in places.package) or any(test(act.target) for test in covers):
            continue
        if name in names or name.rstrip("0123456789.") in names:
            continue
        found.setdefault(name if folder in SYSTEM_PROGRAMS else act.target, []).append(act)
    return tuple(Line(name, told(*those)) for name, those in sorted(found.items()))


def _hosts(acts: Sequence[Act]) -> tuple[Line, ...]:
    """Return the hosts to permit: with their port, where a connection was seen and not only the name's lookup."""
    connected = {act.target.rpartition(":")[0] for act in acts if ":" in act.target}
    wanted = [act for act in acts if ":" in act.target or act.target not in connected]
    return tuple(Line(act.target, told(act)) for act in sorted(wanted, key=lambda act: act.target))


def _bound_tools(acts: Sequence[Act], named: Sequence[Act], places: Places) -> tuple[Line, ...]:
    """Return the tools that touched only files that their arguments name, besides the server's own."""
    ours = (*places.package, *places.tmp)
    files = [act for act in acts if act.kind in ("read", "write")]
    beside = {tool for act in files if not act.from_arguments and not _is_any(act.target, ours) for tool in act.by}
    tools = {tool: act for act in files if act.from_arguments for tool in act.by if tool not in beside}
    hosts = {tool for act in named for tool in act.by}
    lines = [Line(f"{tool}\0files", f"such as {posixpath.basename(act.target)}") for tool, act in sorted(tools.items())]
    return (*lines, *(Line(f"{tool}\0network", "its arguments name the host") for tool in sorted(hosts)))


def _is_any(path: str, folders: Iterable[str]) -> bool:
    return any(is_below(path, folder) for folder in folders)
