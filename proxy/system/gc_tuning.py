"""Garbage collector, allocator and mappings of processes that load much and then fork."""

from __future__ import annotations

import contextlib
import gc
import re
from pathlib import Path
from typing import Final

M_ARENA_MAX: Final = -8
# New objects until the next collection: about those of a hundred calls in flight. Reference counts free them, so an
# earlier scan would find nothing.
YOUNG: Final = 10_000
MADV_DONTNEED: Final = 4
# A mapping of a file that cannot be written to and has no page of its own: what it shows is the file, and nothing else.
_PURE_FILE: Final = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) r-.p \S+ \S+ [1-9]\d* +/.*\n(?:[A-Z].*\n)*?Anonymous: +0 kB$", re.MULTILINE
)


def pause_collection() -> None:
    """Stop the garbage collector until `freeze`: imports create many objects and almost no garbage."""
    gc.disable()


def freeze() -> None:
    """Exclude all objects that exist now from collection, and start the collector again."""
    # A collection writes to the header of every object it visits; after a fork each write copies the shared page.
    gc.freeze()
    gc.set_threshold(YOUNG)
    gc.enable()


def release_free_memory() -> None:
    """Return freed memory to the system."""
    import ctypes  # noqa: PLC0415  slow to import, and most commands do not need it

    # Compiling the detectors needs as much memory for a moment as the loaded proxy; each fork would inherit it.
    with contextlib.suppress(AttributeError):  # musl has no malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def unmap_unused_files() -> None:
    """Take the pages of libraries out of this process; one that is used again comes from the system's file cache.

    Starting uses three times as much of them as serving does: tables for the linker, and what runs once.
    """
    import ctypes  # noqa: PLC0415

    with contextlib.suppress(OSError, AttributeError):  # no /proc, or no madvise
        madvise = ctypes.CDLL(None).madvise
        for begin, end in _PURE_FILE.findall(Path("/proc/self/smaps").read_bytes()):
            start = int(begin, 16)
            # Where it is refused, the pages stay.
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(int(end, 16) - start), MADV_DONTNEED)


def share_one_arena() -> None:
    """Let all threads started from now on allocate from one arena."""
    import ctypes  # noqa: PLC0415

    # glibc gives each thread an arena of its own, and memory that one thread frees is not reused by the others.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
