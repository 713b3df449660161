"""Runs a program as a user who is nobody in particular: `python -m tests.confine.ordinary PROGRAM ARGUMENT…`, for root.

An interpreter in a folder that is root's alone is shown to it, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from proxy.isolation import MS_BIND, MS_PRIVATE, MS_REC, mount

NOBODY = 65534


def show(folder: Path) -> None:
    """Let everybody look into `folder`, without the rest of what is above it."""
    closed = [each for each in reversed(folder.parents) if not each.stat().st_mode & 0o001]
    if closed:
        handle = os.open(folder, os.O_PATH)
        mount("tmpfs", str(closed[0]), "tmpfs", 0, "mode=0755")
        folder.mkdir(parents=True)
        mount(f"/proc/self/fd/{handle}", str(folder), None, MS_BIND | MS_REC)


def main() -> None:
    os.unshare(os.CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    show(Path(sys.base_prefix))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
