"""The files that a string may name when a server takes it for a path. Pure, no I/O.

The proxy cannot see symbolic links on the server; `_ALIASES` has the well-known ones.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.policy.home import UNKNOWN_HOMES, expand_home
from proxy.policy.path_fastpath import MAX_PATH, read_plain_path
from proxy.policy.text import read_text

# Bounds on the work of one string; beyond them the value is a problem, so it is denied.
_MAX_SCHEMES = 8
_MAX_TAILS = 16
# Behind one of these a second path may begin: "/tmp/x,/etc/passwd", "--file=/etc/passwd".
_LIST_MARKS = frozenset(",:;|= <>@")
# Backslash, and characters that look like a slash or that old code pages turn into one.
_SLASHES = str.maketrans(dict.fromkeys("\\\u2044\u2215\u29f8\u2571\uff0f\u29f5\u2216\uff3c\u00a5\u20a9", "/"))
# The path of a web URL is a file of another machine.
_WEB_SCHEMES = frozenset({"http", "https", "ws", "wss", "ftp", "ftps", "mailto", "data", "javascript"})
_SCHEME = frozenset(string.ascii_letters + string.digits + "+-._")
# Links that lead elsewhere on many machines, and where to: macOS keeps /etc below /private, Linux has
# /run and /var/run as one, merged-/usr systems have /bin and /usr/bin as one.
_ALIASES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    ((".nofollow",), ()),
    ((".resolve", "1"), ()),
    (("volumes", "macintosh hd"), ()),
    *((("private", name), (name,)) for name in ("etc", "var", "tmp")),
    (("system", "volumes", "data"), ()),
    (("var", "run"), ("run",)),
    (("run",), ("var", "run")),
    (("var", "lock"), ("run", "lock")),
    *(((name,), ("usr", name)) for name in ("bin", "sbin", "lib", "lib64")),
    *((("usr", name), (name,)) for name in ("bin", "sbin", "lib", "lib64")),
)
_ALIASES_BY_HEAD = {link[0]: [entry for entry in _ALIASES if entry[0][0] == link[0]] for link, _ in _ALIASES}
GLOB_MARKS = frozenset("*?[{")
# Endings of files that hold keys, system settings or sockets: a search for these is not harmless.
_KEYS = frozenset(
    ("asc", "cfg", "cnf", "conf", "crt", "env", "gpg", "ini", "jks", "kdbx", "key", "p12", "pem", "pfx", "ppk", "sock")
)


# Last components that look for every file.
_ALL_FILES = ("*", "**", "*.*")


class PathViews(NamedTuple):
    """The files that one string may name. Every path ends in `/`, so that `/etc/` is no prefix of `/etcetera/`.

    `exact` are the paths that a careful server would open; `folded` are these and the
    ones that a careless server would, without case; `relative` are paths below the
    server's working directory; `globs` are absolute patterns, and relative ones taken
    from the root; `searches` are relative patterns that look for a kind of file below
    the working directory (`**/*.py`), also taken from the root.
    """

    exact: tuple[str, ...]
    folded: tuple[str, ...]
    relative: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    problem: str | None = None
    searches: tuple[str, ...] = ()


@dataclass(slots=True)
class _Collector:
    homes: tuple[str, ...] = UNKNOWN_HOMES
    exact: dict[str, None] = field(default_factory=dict)
    loose: dict[str, None] = field(default_factory=dict)
    relative: dict[str, None] = field(default_factory=dict)
    problem: str | None = None
    taken: set[tuple[str, bool]] = field(default_factory=set)
    searching: dict[str, bool] = field(default_factory=dict)

    def views(self) -> PathViews:
        folded = dict.fromkeys(p.casefold() for p in (*self.exact, *self.loose))
        patterns = [p for p in folded if not GLOB_MARKS.isdisjoint(p)]
        searches = tuple(p for p in patterns if self.searching.get(p))
        globs = tuple(p for p in patterns if not self.searching.get(p))
        return PathViews(tuple(self.exact), tuple(folded), tuple(self.relative), globs, self.problem, searches)


class _Walk(NamedTuple):
    parts: tuple[str, ...]
    absolute: bool
    escaped: bool
    problem: str | None


def read_path(raw: str, homes: tuple[str, ...] = UNKNOWN_HOMES) -> PathViews:
    """Return every file `raw` may name; `homes` are the folders that `~` may stand for."""
    plain = read_plain_path(raw)
    if plain is None:
        return read_path_fully(raw, homes)
    folded = (plain.lower(),)
    return PathViews((plain,), folded) if raw[0] == "/" else PathViews((), folded, (plain[1:],))


def read_path_fully(raw: str, homes: tuple[str, ...] = UNKNOWN_HOMES) -> PathViews:
    """Return every file `raw` may name, without the fast path."""
    found = _Collector(homes)
    if len(raw) > MAX_PATH:
        return PathViews((), (), problem=f"longer than {MAX_PATH} characters")
    text = read_text(raw)
    found.problem = text.problem
    for reading in text.readings:
        _read_one(reading, found)
    return found.views()


def _read_one(reading: str, found: _Collector) -> None:
    # C libraries end a path at NUL: "/tmp/x\0.txt" opens /tmp/x.
    if "\0" in reading:
        found.problem = "a NUL character"
    stripped = reading.strip()
    split = _split_scheme(stripped)
    careful = reading
    if split is not None and split[0] == "file":
        careful = _after_authority(split[1].replace("\\", "/")).partition("?")[0].partition("#")[0]
    _take(careful, found, strict=True)
    _take(stripped, found, strict=False)
    for other in _careless(stripped, found):
        _take(other, found, strict=False)


def _careless(text: str, found: _Collector) -> list[str]:
    """Return variants that only a server with odd habits would open."""
    out = []
    # Quotes that a shell or a template would remove, and curl's @file.
    if text[:1] in "\"'`<(" and len(text) > 1:
        out.append(text.strip("\"'`<>()"))
    if text[:1] == "@":
        out.append(text[1:])
    if "\n" in text:
        out.extend(text.splitlines()[:_MAX_TAILS])
    starts = [i for i, c in enumerate(text) if c == "/" and i and text[i - 1] in _LIST_MARKS]
    out.extend(text[i:] for i in starts[-_MAX_TAILS:])
    # Some servers drop controls, blanks around a component, and `;parameters` (Tomcat).
    parts = "".join(c for c in text if c >= " ").translate(_SLASHES).split("/")
    tidied = "/".join(part.partition(";")[0].strip() for part in parts)
    if tidied != text:
        out.append(tidied)
    # A filter that removes "../" once turns "....//" into "../".
    if "...." in text:
        out.append(text.replace("../", "").replace("..\\", ""))
    return out + _behind_schemes(text, found)


def _behind_schemes(text: str, found: _Collector) -> list[str]:
    out: list[str] = []
    rest = text
    for _ in range(_MAX_SCHEMES):
        split = _split_scheme(rest)
        if split is None or split[0] in _WEB_SCHEMES:
            return out
        rest = split[1]
        location = _after_authority(rest)
        out += [location, location.partition("?")[0].partition("#")[0], rest]
    found.problem = "a path behind too many schemes"
    return out


def _split_scheme(text: str) -> tuple[str, str] | None:
    scheme, colon, rest = text.partition(":")
    if not colon or len(scheme) < 2 or not scheme[0].isalpha() or not _SCHEME.issuperset(scheme):
        return None
    return scheme.lower(), rest


def _after_authority(rest: str) -> str:
    if not rest.startswith("//"):
        return rest
    authority, slash, path = rest[2:].partition("/")
    if authority[1:2] in (":", "|") or not slash:
        return "/" + rest[2:]
    return slash + path


def _take(text: str, found: _Collector, *, strict: bool) -> None:
    if (text, strict) in found.taken or (text, True) in found.taken:
        return
    found.taken.add((text, strict))
    slashed = text.translate(_SLASHES)
    for form in (text,) if slashed == text else (text, slashed):
        at_home = expand_home(form.lstrip(_BEFORE_HOME), found.homes)
        if at_home is None:
            _flag(form, found)
            _add(form, found, strict=strict)
            continue
        # Which of several homes it is, only the server knows: enough for a deny, not for an allow.
        for path in at_home:
            _add(path, found, strict=strict and len(at_home) == 1)
        if not strict:
            _add(form, found, strict=False)


# Quotes and blanks that a careless server drops before it looks for a home.
_BEFORE_HOME = "\"'` \t\r\n"


def _flag(text: str, found: _Collector) -> None:
    head = text.lstrip(_BEFORE_HOME)
    mark, following = head[:1], head[1:2]
    if mark == "~":
        found.problem = "it starts with ~, which the server replaces by a folder; write the full path"
    elif (mark == "$" and (following in ("{", "(", "_") or following.isalpha())) or (
        mark == "%" and following.isalpha() and head.count("%") > 1
    ):
        found.problem = "it starts with a variable, which the server replaces; write the full path"


def _add(text: str, found: _Collector, *, strict: bool) -> None:
    walk = _walk(text)
    if walk.problem:
        found.problem = walk.problem
    # Both meanings of /proc/self/root: the link it is on Linux, and a plain folder elsewhere.
    if "proc" in text.casefold() or "dev" in text.casefold():
        found.loose[join_parts(_walk(text, follow=False).parts)] = None
    path = join_parts(walk.parts)
    folded = path.casefold()
    # A search only where every reading that gives the path searches by it.
    found.searching[folded] = found.searching.get(folded, True) and is_search(text, walk.parts)
    paths = found.exact if strict and walk.absolute else found.loose
    paths[path] = None
    if strict and not walk.absolute:
        found.relative["../" if walk.escaped else path[1:] or "./"] = None
    _add_likely(walk.parts, found)
    tails = _tails(text)
    if len(tails) > _MAX_TAILS:
        found.problem = "too many steps up"
    for tail in tails[:_MAX_TAILS]:
        again = _walk(tail)
        found.loose[join_parts(again.parts)] = None
        _add_likely(again.parts, found)


def _add_likely(parts: tuple[str, ...], found: _Collector, hops: int = 0) -> None:
    """Add the targets of well-known links, and what Windows makes of a name."""
    lowered = tuple(p.casefold() for p in parts)
    for link, target in _ALIASES_BY_HEAD.get(lowered[0], ()) if lowered else ():
        if lowered[: len(link)] == link:
            aliased = target + parts[len(link) :]
            found.loose[join_parts(aliased)] = None
            if hops < 3:
                _add_likely(aliased, found, hops + 1)
    # NTFS opens "etc::$INDEX_ALLOCATION" and "etc." as "etc".
    trimmed = tuple(
        p if i == 0 and p[1:2] == ":" else p.partition(":")[0].strip(" \t\r\n").rstrip(". ")
        for i, p in enumerate(parts)
    )
    if trimmed != parts:
        found.loose[join_parts(tuple(p for p in trimmed if p))] = None
    drive = _drive(lowered)
    if drive:
        found.loose[join_parts((drive[0] + ":", *parts[drive[1] :]))] = None
        found.loose[join_parts(parts[drive[1] :])] = None


def _drive(lowered: tuple[str, ...]) -> tuple[str, int] | None:
    """Return the drive letter of a path, and how many components name it: C:, /mnt/c, /cygdrive/c, /c, host/c$."""
    if not lowered:
        return None
    head = lowered[0]
    if len(head) == 2 and head[1] in ":|":
        return head[0], 1
    if head in ("mnt", "cygdrive") and len(lowered) > 1 and len(lowered[1]) == 1:
        return lowered[1], 2
    if len(head) == 1 and head.isalpha():
        return head, 1
    share = 2 if head == "unc" else 1
    if len(lowered) > share and len(lowered[share]) == 2 and lowered[share][1] == "$":
        return lowered[share][0], share + 1
    return None


def _tails(text: str) -> list[str]:
    """Return what follows each `..`: behind a link, `..` may lead to the root."""
    if ".." not in text:
        return []
    parts = text.split("/")
    return [
        "/" + "/".join(parts[i + 1 :])
        for i, part in enumerate(parts)
        if part == ".." and i + 1 < len(parts) and parts[i + 1] not in ("..", ".", "")
    ]


def _walk(text: str, *, follow: bool = True) -> _Walk:
    # Windows device prefixes (slashes already turned): \\?\C:\etc is C:\etc.
    if text.startswith(("//?/", "//./", "/??/")):
        text = text[4:]
    drive = len(text) > 1 and text[1] in ":|" and text[0].isalpha()
    absolute = drive or text[:1] == "/"
    if drive:
        text = text[0].upper() + ":/" + text[2:]
    stack: list[str] = []
    escaped = False
    problem = "a path by inode" if text.casefold().startswith("/.vol/") else None
    for part in text.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            # What `..` means behind a link depends on where the link leads.
            if len(stack) > 1 and stack[0].casefold() in ("proc", "dev"):
                problem = "a step up from inside /proc or /dev"
            escaped = escaped or (not stack and not absolute)
            del stack[-1:]
            continue
        stack.append(part)
        if follow and _through_proc(stack):
            link = stack[-1].casefold()
            # /proc/…/root is the root folder, /proc/…/cwd the working directory.
            absolute = absolute and link == "root"
            problem = problem or ("a file descriptor path" if link in ("fd", "map_files") else None)
            stack.clear()
    return _Walk(tuple(stack), absolute, escaped, problem)


def _through_proc(stack: list[str]) -> bool:
    """Return whether the path so far is a link of /proc or /dev/fd that leads elsewhere."""
    head = stack[0].casefold()
    if head == "dev":
        return len(stack) == 2 and stack[1].casefold() == "fd"
    of_process = len(stack) == 3 or (len(stack) == 5 and stack[2].casefold() == "task")
    return head == "proc" and of_process and stack[-1].casefold() in ("root", "cwd", "fd", "map_files")


def is_search(text: str, parts: tuple[str, ...]) -> bool:
    """Return whether a path is relative and looks below its folder for all files, or by their ending: `**/*.py`."""
    # From the root `**/*.py` reaches everything, but agents send it all day and mean their workspace.
    as_written = tuple(part for part in text.split("/") if part not in ("", "."))
    if text[:1] == "/" or parts != as_written or not parts or parts[0] not in _ALL_FILES:
        return False
    named = all(part in ("*", "**") or GLOB_MARKS.isdisjoint(part) for part in parts[:-1])
    if parts[-1] in _ALL_FILES:
        return named
    endings = search_endings(parts[-1].casefold())
    return named and bool(endings) and all(ending.isalnum() and ending not in _KEYS for ending in endings)


def search_endings(pattern: str) -> list[str]:
    """Return the endings that `*.py`, `test_*.py`, `package.json` or `*.{ts,tsx}` looks for; none for all files."""
    name, _, endings = pattern.rpartition(".") if "{" not in pattern else pattern.partition(".")
    if not name or name.startswith(".") or pattern in _ALL_FILES or not set("[{").isdisjoint(name):
        return []
    return endings.removeprefix("{").removesuffix("}").split(",")


def join_parts(parts: tuple[str, ...]) -> str:
    return "/" + "".join(part + "/" for part in parts)
