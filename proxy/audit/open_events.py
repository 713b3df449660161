"""Opens the store of audit events: on Postgres where a URL is given, else on a file in the state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.audit.event_store_postgres import PostgresEvents
from proxy.audit.event_store_sqlite import SqliteEvents
from proxy.store.open_store import open_database

if TYPE_CHECKING:
    from pathlib import Path

    from proxy.audit.event_store import Events

EVENTS_TIMEOUT = 30.0


def open_events(
    database_url: str | None,
    state_dir: Path,
    *,
    timeout: float = EVENTS_TIMEOUT,
    in_thread: bool = True,
    connections: int | None = None,
) -> Events:
    """Return the store of audit events, on connections of its own: a long query holds up no commit.

    A caller that may wait for a file itself passes `in_thread=False`.
    """
    database = open_database(database_url, state_dir, timeout=timeout, in_thread=in_thread, connections=connections)
    return PostgresEvents(database) if database_url else SqliteEvents(database)
