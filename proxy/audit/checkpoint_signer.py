"""Signs checkpoints of a log while it is written: every so often, every so many events, and at the end.

In a thread of its own, so that no event waits for a signature or for the command that checkpoints are sent to.
"""

from __future__ import annotations

import subprocess
import threading
import time
from typing import TYPE_CHECKING

import structlog

from proxy.audit.checkpoints import Checkpoint, Kind, Signed, append, by_writer, read, sign
from proxy.audit.signing_keys import AuditKeys
from proxy.errors import InterlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proxy.audit.checkpoint_places import CheckpointPlace
    from proxy.audit.signing_keys import PublicKey
    from proxy.core.event import Head

log = structlog.get_logger("interlock.checkpoints")

EVERY_EVENTS = 1000
LOOK_SECONDS = 1.0
COMMAND_SECONDS = 10.0
MAX_UNSENT = 1000


class CheckpointSigner:
    """Signs checkpoints; adds them to a file, and gives them to a command on its standard input. Threads may use it."""

    def __init__(
        self,
        state_dir: Path,
        file: Path,
        command: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        *,
        copies: Sequence[CheckpointPlace] = (),
    ) -> None:
        self._keys = AuditKeys(state_dir)
        self._file = file
        self._command = command
        self._clock = clock
        self._lock = threading.Lock()
        self._unwritten: list[Checkpoint] = []
        self._unsent: list[Checkpoint] = []
        self._uncopied: list[tuple[CheckpointPlace, list[Checkpoint]]] = [(place, []) for place in copies]
        self._unstored: list[Checkpoint] = []  # for the store: the shipper takes them there
        self.problem: str | None = None  # why checkpoints could not be written or sent, if so

    def sign(self, kind: Kind, heads: Sequence[Head]) -> bool:
        """Sign heads of chains; return whether every place took them. What one did not is sent there again later."""
        with self._lock:
            try:
                made = self.make(kind, heads)
            except (OSError, InterlockError) as error:
                return self._failed(error)
            self._unstored = [*self._unstored, *made][-MAX_UNSENT:]
            # Each has a queue of its own: where one fails, the other gets its checkpoints all the same.
            done = [self._deliver(lambda waiting: append(self._file, waiting), self._unwritten, made)]
            if self._command:
                done.append(self._deliver(self._send, self._unsent, made))
            done += [self._deliver(place.add, waiting, made) for place, waiting in self._uncopied]
            self.problem = None if all(done) else self.problem
            return all(done)

    def make(self, kind: Kind, heads: Sequence[Head]) -> list[Checkpoint]:
        """Return signed checkpoints, for the caller to store. Raises ConfigError or OSError where there is no key."""
        now = self._clock()
        return [sign(self._keys, kind, head, now) for head in heads]

    def key(self) -> PublicKey:
        """Return the public half of the key that signs. Raises ConfigError or OSError where there is none."""
        return self._keys.current()

    def public(self) -> list[PublicKey]:
        return self._keys.public()

    def take_unstored(self) -> list[Checkpoint]:
        """Return what was signed since the last time, for the store."""
        with self._lock:
            taken, self._unstored = self._unstored, []
        return taken

    def put_back(self, taken: Sequence[Checkpoint]) -> None:
        """Keep what the store did not take for the next time."""
        with self._lock:
            self._unstored = [*taken, *self._unstored][-MAX_UNSENT:]

    def _deliver(
        self, take: Callable[[list[Checkpoint]], None], waiting: list[Checkpoint], made: Sequence[Checkpoint]
    ) -> bool:
        waiting += made
        try:
            take(waiting)
        except (OSError, InterlockError, subprocess.SubprocessError) as error:
            del waiting[:-MAX_UNSENT]  # the newest vouch for all events before them
            return self._failed(error)
        waiting.clear()
        return True

    def _failed(self, error: Exception) -> bool:
        self.problem = str(error)
        log.error("checkpoints of the audit trail cannot be written", error=str(error))
        return False

    def signed(self) -> dict[str, Signed]:
        """Return what the valid checkpoints in the file say, by writer. Raises ConfigError where it cannot be read."""
        found = read(self._file, self._keys.public()) if self._file.exists() else ()
        return by_writer(one for one in found if isinstance(one, Checkpoint))

    def _send(self, checkpoints: list[Checkpoint]) -> None:
        lines = "".join(f"{checkpoint.line()}\n" for checkpoint in checkpoints)
        subprocess.run(  # noqa: S603  the operator's own command, no shell
            self._command,
            input=lines.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COMMAND_SECONDS,
            check=True,
        )


class Watch:
    """Has the head of one log signed: at once, then as it grows, and at the end."""

    def __init__(self, signer: CheckpointSigner, head: Callable[[], Head], every_seconds: float) -> None:
        self._signer = signer
        self._head = head
        self._every = every_seconds
        self._last = -1  # nothing was signed yet, not even that nothing was written
        self._at = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-checkpoints", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Sign the end. To be called once the log is closed."""
        self._end.set()
        self._thread.join()
        if self._head().seq != self._last:
            self._sign_head()

    def _run(self) -> None:
        self._sign_head()
        while not self._end.wait(min(LOOK_SECONDS, self._every)):
            new = self._head().seq - self._last
            if new >= EVERY_EVENTS or (new and time.monotonic() - self._at >= self._every):
                self._sign_head()

    def _sign_head(self) -> None:
        head = self._head()
        self._at = time.monotonic()
        if self._signer.sign("head", [head]):
            self._last = head.seq
