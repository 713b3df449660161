"""Both stores, so that one contract holds for them alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.audit.event_store import Events
from proxy.audit.open_events import open_events
from proxy.store.open_store import open_store
from proxy.store.proposal_store import Proposals
from tests.support.timeouts import PATIENCE


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str | None, Path]:
    """A database URL or none, and a state folder: where a store is."""
    return (request.getfixturevalue("database_url") if request.param == "postgres" else None), tmp_path


def patient_store(database_url: str | None, state_dir: Path) -> Proposals:
    """Return the store of proposals that is used there, with all the time that it may need."""
    store = open_store(database_url, state_dir)
    store.database._timeout = PATIENCE  # type: ignore[attr-defined]
    return store


@pytest.fixture
async def store(where: tuple[str | None, Path]) -> AsyncIterator[Proposals]:
    """A store on each kind of database."""
    opened = patient_store(*where)
    yield opened
    await opened.close()


@pytest.fixture
async def events(where: tuple[str | None, Path]) -> AsyncIterator[Events]:
    """A store of events on each kind of database."""
    opened = open_events(*where)
    yield opened
    await opened.close()
