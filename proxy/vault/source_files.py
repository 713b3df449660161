"""Who can read the files that values come from, by their modes and those of their folders."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.vault.vault_file import FileSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.vault.vault_file import Source


def source_files(sources: Iterable[Source]) -> tuple[str, ...]:
    """Return the files among sources, as they are named and as they are behind all links."""
    named = [source.path for source in sources if isinstance(source, FileSource)]
    return tuple(dict.fromkeys(path for each in named for path in (each, os.path.realpath(each))))


def exposure(path: str) -> tuple[str, str] | None:
    """Say who else may read or change a file, and the command that ends it; None where nobody may, or it is not there.

    A folder that others may not enter protects what is in it, whatever the modes there.
    """
    real = Path(os.path.realpath(path))
    try:
        mode, above = stat.S_IMODE(real.stat().st_mode), [stat.S_IMODE(each.stat().st_mode) for each in real.parents]
    except OSError:
        return None
    others = mode & stat.S_IRWXO if all(each & stat.S_IXOTH for each in above) else 0
    group = mode & stat.S_IRWXG if all(each & (stat.S_IXGRP | stat.S_IXOTH) for each in above) else 0
    for who, may in (("everybody on this machine", others), ("its group", group >> 3)):
        if may & stat.S_IWOTH:
            return f"{who} may change {path} ({mode:04o})", f"chmod 600 {shlex.quote(str(real))}"
        if may & stat.S_IROTH:
            return f"{who} may read {path} ({mode:04o})", f"chmod 600 {shlex.quote(str(real))}"
    return None


def is_own(path: str) -> bool:
    """Return whether this user's programs may read a file: so may an agent that runs as this user."""
    return os.access(path, os.R_OK)
