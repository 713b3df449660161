"""Which words of a program name files of this machine, and not of a container or another host. Pure, no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.policy.globs import is_glob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONTAINERS: Final = frozenset(("docker", "podman", "nerdctl", "kubectl", "oc"))
COPIES_OVER_NETWORK: Final = frozenset(("scp", "rsync", "sftp"))
# They say names and sizes, never what is in a file: `du -sh /*` and `ls -d .*` are ordinary.
LISTERS: Final = frozenset(("ls", "dir", "vdir", "ll", "la", "exa", "eza", "lsd", "du", "df", "stat", "tree", "locate"))

_STARTS: Final = frozenset(("run", "exec", "create"))
_VOLUMES: Final = ("-v", "--volume")
# Options of `docker run` with a file of this machine.
_FILES: Final = ("--env-file", "--device", "--cidfile", "--label-file", "--volumes-from", "--security-opt")
_REMOTE: Final = re.compile(r"(?:[^/:@\s]+@)?(\[[^\]]+\]|[^/:\s]+):")
_HERE: Final = re.compile(r"localhost|ip6-|127\.|\[?::|\[?0|[*\ue000-\uf8ff$]|\d+$", re.IGNORECASE)
_SOURCE: Final = re.compile(r"(?:^|,)(?:source|src)=([^,]*)")


def local_words(name: str, args: Sequence[str], *, listed: bool = False) -> Iterator[str]:
    """Return the words that name files here. With `listed`, nothing reads what a lister says."""
    if name in CONTAINERS and any(arg in _STARTS for arg in args[:8]):
        yield from _mounted(args)
    elif (name in CONTAINERS and "cp" in args[:3]) or name in COPIES_OVER_NETWORK:
        yield from (arg for arg in args if not _is_elsewhere(arg))
    elif name in LISTERS and listed:
        yield from filter(None, map(_before_glob, args))
    else:
        yield from args


def is_inside(name: str, args: Sequence[str]) -> bool:
    """Return whether the program that `name` starts runs in a container, with files of its own."""
    return name in CONTAINERS and any(arg in _STARTS for arg in args[:8])


def _mounted(args: Sequence[str]) -> Iterator[str]:
    for i, arg in enumerate(args):
        option, equals, attached = arg.partition("=")
        value = attached if equals else args[i + 1] if i + 1 < len(args) else ""
        if option in _VOLUMES:
            yield _host_side(value)
        elif arg.startswith("-") and not arg.startswith("--") and "v" in arg:
            # Letters in one word: `-itv /:/host`, `-v/:/host`.
            yield _host_side(arg.partition("v")[2] or value)
        elif option == "--mount":
            yield from _SOURCE.findall(value)
        elif option in _FILES:
            yield value.partition(":")[0]


def _host_side(volume: str) -> str:
    drive = volume[:2] if volume[:1].isalpha() and volume[1:3] in (":\\", ":/") else ""
    return drive + volume[len(drive) :].partition(":")[0]


def _is_elsewhere(arg: str) -> bool:
    """Return whether a word is `host:path` and the host is no name of this machine."""
    remote = _REMOTE.match(arg)
    return remote is not None and not arg.startswith("-") and _HERE.match(remote[1]) is None


def _before_glob(arg: str) -> str:
    """Return the folders of a path before its first pattern."""
    if not is_glob(arg):
        return arg
    known: list[str] = []
    for part in arg.split("/"):
        if is_glob(part):
            break
        known.append(part)
    return "/".join(known) or ("/" if arg.startswith("/") else "")
