"""How commands read events: from the store and from the local logs that fill it, as one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from rich.console import Console

from proxy.audit import reading
from proxy.audit.following import Following
from proxy.config import Settings
from proxy.errors import StoreUnavailableError
from proxy.store.event_store import Events
from proxy.store.open_store import open_events, store_exists

FOLLOW_SECONDS = 0.5


def last_events(settings: Settings, number: int) -> list[dict[str, Any]]:
    """Return the last events, oldest first. A store that does not answer is told of, and left out."""

    async def ask() -> list[dict[str, Any]]:
        async with _store(settings) as store:
            return await reading.last_events(store, settings.state_dir, number)

    try:
        return asyncio.run(ask())
    except StoreUnavailableError as error:
        message = f"Only what is still in the local logs is shown: {error}"
        Console(stderr=True, soft_wrap=True).print(message, style="yellow", markup=False)
        return asyncio.run(reading.last_events(None, settings.state_dir, number))


def follow(settings: Settings, number: int, pause: float = FOLLOW_SECONDS) -> Iterator[list[dict[str, Any]]]:
    """Return the last events, and then whatever comes, as it comes; never ends by itself.

    A store that does not answer is asked again.
    """
    following = Following(settings.state_dir)
    asyncio.run(following.begin())
    batch = last_events(settings, number)
    following.know(batch)
    while True:
        with _opened(settings) as (runner, store):
            runner.run(following.settle(store))
            while True:
                if batch:
                    yield batch
                time.sleep(pause)
                batch = runner.run(following.look(store))
                if store is None and store_exists(settings.postgres, settings.state_dir):
                    break  # somebody has just made it


def events_since(settings: Settings, since: float) -> Iterator[dict[str, Any]]:
    """Return the events from a time on, oldest first. Raises StoreUnavailableError."""
    with _opened(settings) as (runner, store):
        found = reading.events_since(store, settings.state_dir, since)
        while (event := runner.run(anext(found, None))) is not None:
            yield event


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[tuple[asyncio.Runner, Events | None]]:
    """Open the store, for work that is done piece by piece."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        opened = _store(settings)
        store = runner.run(opened.__aenter__())
        stack.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
        yield runner, store


@contextlib.asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Events | None]:
    if not store_exists(settings.postgres, settings.state_dir):
        yield None
        return
    store = open_events(settings.postgres, settings.state_dir)
    try:
        yield store
    finally:
        await store.close()
