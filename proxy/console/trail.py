"""The audit trail as the console reads it: one connection to the store for all pages, the local logs anew for each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from proxy.audit.open_events import open_events
from proxy.audit.reader import AuditReader
from proxy.store.open_store import store_exists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from proxy.audit.event_store import Events

# A page must not wait longer: whoever asks for more narrows the question.
QUERY_SECONDS: Final = 10.0


class Trail:
    """Opens readers of the audit trail. They raise StoreUnavailableError and AuditUnavailableError."""

    def __init__(self, database_url: str | None, state_dir: Path, *, timeout: float = QUERY_SECONDS) -> None:
        self._database_url = database_url
        self.state_dir = state_dir
        self._timeout = timeout
        self._store: Events | None = None

    @property
    def shared(self) -> bool:
        """Whether other machines may ship to the same store."""
        return self._database_url is not None

    def store(self) -> Events | None:
        """Return the store; None as long as there is none. A worker makes it when it ships for the first time."""
        if self._store is None and store_exists(self._database_url, self.state_dir):
            self._store = open_events(self._database_url, self.state_dir, timeout=self._timeout)
        return self._store

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[AuditReader]:
        """Yield a reader of what is there now."""
        async with contextlib.AsyncExitStack() as closing:
            yield AuditReader(self.state_dir, self.store, closing)

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
