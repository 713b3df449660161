"""Both stores, so that one contract holds for them alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.store.choice import open_events, open_store
from proxy.store.events import Events
from proxy.store.proposals import Proposals


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str | None, Path]:
    """A database URL or none, and a state folder: where a store is."""
    return (request.getfixturevalue("database_url") if request.param == "postgres" else None), tmp_path


@pytest.fixture
async def store(where: tuple[str | None, Path]) -> AsyncIterator[Proposals]:
    """A store on each kind of database."""
    opened = open_store(*where)
    yield opened
    await opened.close()


@pytest.fixture
async def events(where: tuple[str | None, Path]) -> AsyncIterator[Events]:
    """A store of events on each kind of database."""
    opened = open_events(*where)
    yield opened
    await opened.close()
