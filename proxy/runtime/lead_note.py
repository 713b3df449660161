"""A file by which the worker with the lead tells the others of its replica that it follows the store for them.

What is in force comes to the others by the replica's own files. So while the lead is well they ask the database
nothing, and hold no connection. One that hangs, or whose database is away, says nothing more, and each asks for itself.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = structlog.get_logger("interlock.lead")

TELL_SECONDS: Final = 1.0
FRESH_SECONDS: Final = 3.0
LISTEN_SECONDS: Final = 10.0  # so long after its start a worker leaves it to the lead to listen
FILE: Final = "lead-follows"


class LeadNote:
    """The note of one replica. `lead`: whether this process has the lead, or no other could have it."""

    def __init__(self, state_dir: Path, lead: Callable[[], bool]) -> None:
        self._path = state_dir / FILE
        self._lead = lead
        self._began = time.monotonic()
        self._said: int | None = None

    def say(self, revision: int) -> None:
        """Tell that this process follows, and up to which revision of the fleet it has."""
        try:
            if revision == self._said and self._path.exists():
                os.utime(self._path)
                return
            made = self._path.with_name(f"{FILE}.{os.getpid()}")
            made.write_text(str(revision))
            made.replace(self._path)
            self._said = revision
        except OSError as error:  # then the others ask for themselves
            log.debug("the other workers are not told", error=str(error))

    async def tell_forever(self, followed: Callable[[], int | None]) -> None:
        """Tell the others every second, where this process has the lead and follows. Runs until cancelled."""
        while True:
            if self._lead() and (revision := followed()) is not None:
                self.say(revision)
            await asyncio.sleep(TELL_SECONDS)

    def followed(self) -> int | None:
        """Return up to which revision of the fleet another process follows the store for this one; None: none does."""
        return None if self._lead() or not self.is_fresh() else self.revision()

    def is_followed(self) -> bool:
        return self.followed() is not None

    def has_to_listen(self) -> bool:
        """Return whether this process may listen: with the lead, and any other once the lead is known to hang."""
        return self._lead() or (not self.is_followed() and time.monotonic() > self._began + LISTEN_SECONDS)

    def is_fresh(self) -> bool:
        """Return whether the lead follows."""
        try:
            age = time.time() - self._path.stat().st_mtime
        except OSError:
            return False
        return -FRESH_SECONDS < age < FRESH_SECONDS

    def revision(self) -> int | None:
        """Return the fleet's revision that the lead has; None where it is not known."""
        try:
            return int(self._path.read_text())
        except (OSError, ValueError):
            return None
