"""Keeps a process that holds credentials out of core dumps, and its memory from other processes of the same user."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


@functools.cache
def keep_out_of_dumps() -> None:
    """Let nobody but root read this process's memory, and let it leave no core file; once, and for good.

    Where the system cannot do so, the process goes on: its files are no safer than its memory then.
    """
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
