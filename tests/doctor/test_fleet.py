from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.core.secret_variables import KEK_ENV
from proxy.doctor.fleet import replicas
from proxy.errors import ConfigError
from tests.support.fleet_fixture import ENVIRON, OTHER_KEK, FleetWorld
from tests.support.postgres import Postgres

ROW = "INSERT INTO fleet_replicas VALUES ('{}', 'host', '1', 11, 'p', 'k', 1, 0, 0, {}, now(), now() - interval '{}')"


def states(settings: Settings, kek: str | None = None) -> list[tuple[str, str]]:
    return [(one.state, one.said) for one in replicas(settings, ENVIRON if kek is None else {KEK_ENV: kek})]


def test_it_says_whether_the_replicas_are_there_and_agree(
    tmp_path: Path, database_url: str, postgres: Postgres
) -> None:
    world = FleetWorld(tmp_path, database_url)
    assert states(world.settings("alone"))[0][1] == "this state folder belongs to no fleet"
    world.init("a")
    assert states(world.settings("a")) == [("ok", "0 replicas, all of them ready")]
    postgres.psql(ROW.format("r1", "NULL", "1 hour"), database_url)
    postgres.psql(ROW.format("r2", "'odd'", "0"), database_url)
    (first, said), (second, why) = states(world.settings("a"))
    assert (first, second) == ("warn", "warn")
    assert "r1 on host has been silent for" in said
    assert "r2 on host is not ready: odd" in why
    assert "sealed with" in states(world.settings("a"), OTHER_KEK)[0][1]
    assert states(world.settings("a", "postgresql://127.0.0.1:1/x"))[0][0] == "fail"
    postgres.psql("DELETE FROM fleet", database_url)
    assert "the database has none" in states(world.settings("a"))[0][1]
    with pytest.raises(ConfigError, match="no key in env"):
        states(world.settings("a"), "")
