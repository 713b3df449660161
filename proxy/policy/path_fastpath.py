"""The fast path for file paths that every server reads alike: most are. Pure, no I/O.

`paths.read_path_fully` reads a string in every way that a server might; that takes 55 to 170 µs. A string
that has one reading alone skips it. Each clause below excludes strings that the full reading
takes for more than one path; tests/policy/test_path_fastpath.py holds the two against each other.
"""

from __future__ import annotations

import string
from typing import Final

MAX_PATH: Final = 4096
# ASCII only, so there is nothing to fold (NFKC) or to drop. Missing on purpose: % (encoded), \ (a
# separator on Windows), ~ and $ (expanded), : (drives, schemes, streams), * ? [ { (globs), ; | < > @
# and quotes (lists and other syntax around a path), control characters.
_SAFE: Final = string.ascii_letters + string.digits + "/_-.,+= "
# Links of the system that lead elsewhere (/bin is /usr/bin, /var/run is /run, macOS has /private),
# the links of /proc and /dev, and mount points of Windows drives.
_SPECIAL_HEADS: Final = (
    *("/.", "/volumes", "/private", "/system", "/proc", "/dev", "/mnt/", "/cygdrive", "/run", "/var/run", "/var/lock"),
    *("/bin", "/sbin", "/lib", "/usr/bin", "/usr/sbin", "/usr/lib"),
)


def read_plain_path(raw: str) -> str | None:
    """Return the path of a string that names one file only, with `/` at both ends; None where it may name more.

    A relative path is returned as if it started at the root.
    """
    path = raw if raw[:1] == "/" else "/" + raw
    if (
        # Longer is refused by the full reading, not read.
        len(raw) <= MAX_PATH
        # strip() is the cheapest way in Python to find that no other character is in it: what
        # remains starts with one that is not safe.
        and not path.strip(_SAFE)
        # "a//b": some servers collapse the slashes, some take the rest for a host or a new root.
        and "//" not in path
        # "./", "../" and "x./": a step up or nowhere, and Windows drops the dot of "etc./passwd".
        and "./" not in path
        # "etc /passwd", "/ etc": Windows and careless servers drop blanks at the ends of a name,
        # and "x /etc/passwd" may be a list.
        and " /" not in path
        and "/ " not in path
        # "x,/etc/passwd" and "--file=/etc/passwd": lists and options with a second path in them.
        and ",/" not in path
        and "=/" not in path
        # "/etc." and "/etc ": dropped at the very end, too.
        and path[-1] not in ". "
        # "/c/Windows" is drive C: to Git Bash and MSYS. "" is "/" or one letter, which may be a drive.
        and path[2:3] not in ("/", "")
        # Without case: /PROC is /proc on macOS and Windows.
        and not path.lower().startswith(_SPECIAL_HEADS)
    ):
        return path if path[-1] == "/" else path + "/"
    return None
