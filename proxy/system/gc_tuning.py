"""Memory of a process that makes much that stays: made without looking for garbage, held once by all it forks."""

from __future__ import annotations

import contextlib
import gc
from typing import Final

M_ARENA_MAX: Final = -8
YOUNG: Final = 10_000
"""How many objects more than before there may be until garbage is looked for: those of a hundred calls under way."""


def make_for_good() -> None:
    """Look for no garbage until `settle`: imports and the like make next to none."""
    gc.disable()


def settle() -> None:
    """Leave what there is out of every later look for garbage; what is not looked through is not copied either.

    Calls under way at once are thousands of objects, and leave none behind: they need not be looked through each time.
    """
    gc.freeze()
    gc.set_threshold(YOUNG)
    gc.enable()


def give_back() -> None:
    """Return the system what was freed: compiling detectors takes as much for a moment as all else for good."""
    import ctypes  # noqa: PLC0415  most commands have nothing to give

    with contextlib.suppress(AttributeError):  # of a C library that has no such thing
        ctypes.CDLL(None).malloc_trim(0)


def share_one_arena() -> None:
    """Have all threads to come allocate from one place: else what one of them frees is of no use to the others."""
    import ctypes  # noqa: PLC0415

    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
