"""Runs a program as a user who is nobody in particular: `python -m tests.confine.ordinary PROGRAM ARGUMENT…`, for root.

An interpreter and a checkout in folders that are root's alone are shown to it, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from proxy.sandbox.namespaces import MS_BIND, MS_PRIVATE, MS_REC, mount
from tests.support.processes import REPOSITORY

NOBODY = 65534


def closed_above(folder: Path) -> Path | None:
    """Return the topmost folder above `folder` that not everybody may pass through."""
    return next((each for each in reversed(folder.parents) if not each.stat().st_mode & 0o001), None)


def show(*folders: Path) -> None:
    """Let everybody come to `folders`, without the rest of what is above them."""
    found = [(each, closed_above(each), os.open(each, os.O_PATH)) for each in sorted(folders)]
    for closed in {closed for _, closed, _ in found if closed}:
        mount("tmpfs", str(closed), "tmpfs", 0, "mode=0755")
    for folder, closed, handle in found:
        if closed and not folder.exists():
            folder.mkdir(parents=True)
            mount(f"/proc/self/fd/{handle}", str(folder), None, MS_BIND | MS_REC)


def main() -> None:
    os.unshare(os.CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    modules = REPOSITORY / "tests" / "node" / "node_modules"
    show(*(path.resolve() for path in (REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), modules)))
    os.chdir(REPOSITORY)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
