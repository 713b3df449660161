"""Who can read the files that values come from, by their modes and those of their folders."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.vault.vault_file import FileSource, VaultFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.vault.vault_file import Source


def source_files(sources: Iterable[Source]) -> tuple[str, ...]:
    """Return the files among sources, as they are named and as they are behind all links."""
    named = [Path(source.path) for source in sources if isinstance(source, FileSource)]
    return tuple(dict.fromkeys(str(path) for each in named for path in (each.absolute(), each.resolve())))


def to_hide(sources: Iterable[Source], spared: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders and the files that are to be hidden from programs that should not have the values.

    A folder of secrets alone is hidden as a whole: where a file is hidden and another is put in its place, that one
    would be seen. Folders that hold one of the `spared` paths stay.
    """
    kept = [Path(path).resolve() for path in spared]
    folders: dict[str, None] = {}
    files: dict[str, None] = {}
    for path in map(Path, source_files(sources)):
        folder = path.parent.resolve()
        if _is_of_secrets(folder) and not any(folder in (each, *each.parents) for each in kept):
            folders[str(folder)] = None
        elif path.is_file():
            files[str(path)] = None
    return tuple(folders), tuple(files)


def hidden_sources(state_dir: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders and files with the values of credentials, to be hidden. Raises ConfigError.

    The home and the working folder stay, whatever is in them.
    """
    sources = [entry.source for entry in VaultFile(state_dir).read().credentials.values()]
    return to_hide(sources, (str(Path.home()), str(Path.cwd())))


def _is_of_secrets(folder: Path) -> bool:
    """Return whether only its owner may enter a folder that has files and nothing else; or Kubernetes swaps links."""
    if (folder / "..data").is_symlink():
        return True
    try:
        closed = not stat.S_IMODE(folder.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO)
        return closed and not any(each.is_dir() for each in folder.iterdir())
    except OSError:
        return False


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
