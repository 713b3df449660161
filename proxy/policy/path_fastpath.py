"""Paths that every server reads alike: most are, and need not be read in every way there is. Pure, no I/O."""

from __future__ import annotations

import string
from typing import Final

MAX_PATH: Final = 4096
_SAFE: Final = string.ascii_letters + string.digits + "/_-.,+= "
# Where links of the system lead elsewhere, and where drives are mounted.
_SPECIAL_HEADS: Final = (
    "/.",
    "/volumes",
    "/proc",
    "/dev",
    "/private",
    "/system",
    "/run",
    "/var/run",
    "/var/lock",
    "/mnt/",
    "/cygdrive",
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/bin",
    "/sbin",
    "/lib",
)


def read_plain_path(raw: str) -> str | None:
    """Return the path of a string that names one only, from `/` to `/`; None where it may name more.

    A relative path is given as if it hung on the root.
    """
    path = raw if raw[:1] == "/" else "/" + raw
    if (
        len(raw) <= MAX_PATH
        and not path.strip(_SAFE)
        and "//" not in path
        and "./" not in path
        and " /" not in path
        and "/ " not in path
        and ",/" not in path
        and "=/" not in path
        and path[-1] not in ". "
        and path[2:3] not in ("/", "")
        and not path.lower().startswith(_SPECIAL_HEADS)
    ):
        return path if path[-1] == "/" else path + "/"
    return None
