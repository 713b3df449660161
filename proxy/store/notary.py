"""Makes checkpoints of a log while it is written: every so often, every so many events, and at the end.

It runs in a thread of its own, so that no event waits for a signature or for
where checkpoints are sent.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from proxy.errors import InterlockError
from proxy.store.checkpoints import Checkpoint, Signer, append

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proxy.store.chain import Head
    from proxy.store.checkpoints import Kind

log = structlog.get_logger("interlock.checkpoints")

EVERY_EVENTS = 1000
LOOK_SECONDS = 1.0
COMMAND_SECONDS = 10.0
MAX_UNSENT = 1000


@dataclass(frozen=True, slots=True)
class Places:
    """Where checkpoints go: a file, and a command that is given each on its standard input."""

    file: Path
    command: Sequence[str] = ()


class Notary:
    """Signs checkpoints and sends them out. Several threads may use it."""

    def __init__(self, state_dir: Path, places: Places, clock: Callable[[], float] = time.time) -> None:
        self._signer = Signer(state_dir)
        self._places = places
        self._clock = clock
        self._lock = threading.Lock()
        self._unsent: list[Checkpoint] = []
        self.problem: str | None = None
        """Why checkpoints could not be sent out, if so."""

    def certify(self, kind: Kind, heads: Sequence[Head]) -> bool:
        """Sign where chains are; say whether that left the process. What did not is sent again the next time."""
        with self._lock:
            try:
                now = self._clock()
                self._unsent += [self._signer.sign(kind, head, now) for head in heads]
                append(self._places.file, self._unsent)
                self._send()
            except (OSError, InterlockError, subprocess.SubprocessError) as error:
                self.problem = str(error)
                log.exception("checkpoints of the audit trail cannot be written", error=str(error))
                del self._unsent[:-MAX_UNSENT]
                return False
            self._unsent.clear()
            self.problem = None
            return True

    def _send(self) -> None:
        if not self._places.command:
            return
        lines = "".join(f"{checkpoint.line()}\n" for checkpoint in self._unsent)
        subprocess.run(  # noqa: S603  the operator's own command, no shell
            self._places.command,
            input=lines.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=True,
        )


class Watch:
    """Has the head of one log certified: at once, then as it grows, and at the end."""

    def __init__(self, notary: Notary, head: Callable[[], Head], every_seconds: float) -> None:
        self._notary = notary
        self._head = head
        self._every = every_seconds
        self._last = -1  # nothing was certified yet, not even that nothing was written
        self._at = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Certify the end. To be called once the log is closed."""
        self._end.set()
        self._thread.join()
        if self._head().seq != self._last:
            self._certify()

    def _run(self) -> None:
        self._certify()
        while not self._end.wait(min(LOOK_SECONDS, self._every)):
            new = self._head().seq - self._last
            if new >= EVERY_EVENTS or (new and time.monotonic() - self._at >= self._every):
                self._certify()

    def _certify(self) -> None:
        head = self._head()
        self._at = time.monotonic()
        if self._notary.certify("head", [head]):
            self._last = head.seq
