"""The keys that sign commit tokens, where replicas share them: rotated in the store, so that all sign with the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.errors import ConfigError, StoreUnavailableError
from proxy.fleet.mirror import COMMIT
from proxy.fleet.shared_state import SECRET
from proxy.twophase.keys import KEEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.fleet.key_encryption_key import KeyEncryptionKey
    from proxy.fleet.open_state import Fleet
    from proxy.store.fleet_store import DocumentRow
    from proxy.twophase.keys import Entry, KeyFile
    from proxy.twophase.tokens import KeyRing


class SharedCommitKeys:
    """The `keys.CommitKeys` of a fleet: `file` mirrors them here."""

    def __init__(self, fleet: Fleet, file: KeyFile, kek: Callable[[], KeyEncryptionKey]) -> None:
        self._fleet = fleet
        self._file = file
        self._kek = kek

    def ring(self, now: float) -> KeyRing:
        return self._file.ring(now)

    def entries(self, now: float) -> Sequence[Entry]:
        return self._file.entries(now)

    def rotate(self, now: float, keep_seconds: float = KEEP_SECONDS) -> Entry:
        """Let every replica sign with a new key. Raises ConfigError, and then nothing has changed."""
        state = self._fleet.state
        state.kek = self._kek()
        try:
            row = self._fleet.bridge.run(lambda store: store.document(SECRET + COMMIT))
            if row is None:
                raise ConfigError("the database lacks the fleet's commit keys; restore what was lost first")
            state.take_document(row)
            new, data = self._file.rotated(now, keep_seconds)
            made = state.seal_secret(COMMIT, row.generation + 1, data)
            self._replace(made)
        except StoreUnavailableError as error:
            raise ConfigError(f"the fleet's commit keys cannot be rotated: {error}") from error
        state.take_document(made)
        return new

    def _replace(self, made: DocumentRow) -> None:
        if self._fleet.bridge.run(lambda store: store.replace(made)):
            return
        there = self._fleet.bridge.run(lambda store: store.document(made.name))
        # A connection that broke may have committed it.
        if there is None or there.seal != made.seal:
            raise ConfigError("somebody else rotated the fleet's commit keys at the same moment")
