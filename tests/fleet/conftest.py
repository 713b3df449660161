from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet_fixture import FleetWorld
from tests.support.postgres import Postgres


@pytest.fixture
def world(tmp_path: Path, database_url: str) -> Iterator[FleetWorld]:
    made = FleetWorld(tmp_path, database_url)
    yield made
    made.close()


@pytest.fixture
def fleet(world: FleetWorld) -> FleetWorld:
    """Two replicas, a and b."""
    world.init("a")
    world.join("b")
    return world


@pytest.fixture
def writer_url(postgres: Postgres, database_url: str) -> str:
    """The database's URL with the login of a proxy, which has the role interlock_writer alone."""
    name = database_url.split("/")[3].partition("?")[0]
    postgres.psql(
        "DO $$ BEGIN CREATE ROLE fleet_proxy LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$; "
        "GRANT interlock_writer TO fleet_proxy"
    )
    return postgres.url(name, user="fleet_proxy")
