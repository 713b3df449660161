"""The audit trail as a whole, for tests: what is in the store, and what is still in the local logs."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from proxy.audit.open_events import open_events
from proxy.audit.reader import open_audit
from proxy.core.event import Filter

LIMIT = 60
PAGE = 5000


def read_trail(state_dir: Path, database_url: str | None = None) -> list[dict[str, Any]]:
    """Return every event, oldest first. In a thread: the one that asks may have an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_read(state_dir, database_url))).result(LIMIT)


def stored_events(state_dir: Path, database_url: str | None = None) -> list[dict[str, Any]]:
    """Return every event that is in the store, oldest first."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_stored(state_dir, database_url))).result(LIMIT)


async def _stored(state_dir: Path, database_url: str | None) -> list[dict[str, Any]]:
    store, found, after = open_events(database_url, state_dir), [], None
    try:
        while page := await store.events(Filter(), PAGE, after):
            found += [json.loads(entry.body) for _, entry in page]
            after = page[-1][0]
    finally:
        await store.close()
    return found


async def _read(state_dir: Path, database_url: str | None) -> list[dict[str, Any]]:
    async with open_audit(database_url, state_dir) as audit:
        return [json.loads(entry.body) async for entry in audit.entries(Filter())]
