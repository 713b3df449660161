"""Home folders: the spellings of the home of whoever runs a server, and where it may be. Pure, no I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from proxy.policy.wrappers import SHELLS, WRAPPERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Where the home is not known: where Linux, macOS and Windows put homes, and `/`, which is the home of
# service users and of many containers.
UNKNOWN_HOMES: Final = ("/root", "/home/*", "/Users/*", "C:/Users/*", "")
# `~`, `$HOME`, `${HOME}`, `%USERPROFILE%`, `$env:USERPROFILE`, `${env:HOME}` and `${userHome}` of editors.
_HOME: Final = re.compile(
    r"(?:~|\$\{?(?:env:)?(?:home|userprofile|userhome)\}?|%(?:home|userprofile|homepath|homedrive%%homepath)%)"
    r"(?=[/\\]|$)",
    re.IGNORECASE,
)
# What these start has another home, or may have.
_ELSEWHERE: Final = frozenset(("docker", "podman", "nerdctl", "kubectl", "oc", "flatpak", "snap", "wsl", "lxc", "su"))
_OTHERS_HOME: Final = re.compile(r"~([A-Za-z_][\w.-]*)(?=[/\\]|$)", re.ASCII)


def expand_home(text: str, homes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the paths that `text` may lead to where it starts with a home folder; None where it does not."""
    own = _HOME.match(text)
    if own is not None:
        return tuple(home + "/" + text[own.end() :].lstrip("/\\") for home in homes)
    other = _OTHERS_HOME.match(text)
    if other is None:
        return None
    user, rest = other[1], text[other.end() :]
    places = ("/root",) if user == "root" else (f"/home/{user}", f"/Users/{user}", f"C:/Users/{user}")
    # A known home may be this user's, wherever it is.
    mine = tuple(home for home in homes if home.rstrip("/").rpartition("/")[2] == user)
    return tuple(place + rest for place in dict.fromkeys((*mine, *places)))


def own_home(argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Return the home of a server that starts as `argv` here; None where it may have another one."""
    home = environ.get("HOME", "").rstrip("/")
    program = argv[0].rpartition("/")[2]
    moves = program in _ELSEWHERE or program in WRAPPERS or program in SHELLS
    return home if home.startswith("/") and not moves else None
