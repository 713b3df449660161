"""The keys that sign pushed policies, in a fleet and without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.fleet.open_state import find_fleet
from proxy.fleet.policy_keys import read_trusted, trust_key, trusted_path, untrust_key
from proxy.rollout.keys import default_trusted, trust, trusted_keys
from tests.rollout.fixtures import OTHER, PUBLIC
from tests.support.fleet_fixture import FleetWorld
from tests.support.postgres import Postgres


def trusted(settings: Settings) -> set[str]:
    return set(trusted_keys(trusted_path(settings)))


def refresh(settings: Settings) -> str | None:
    fleet = find_fleet(settings)
    assert fleet is not None
    try:
        return fleet.refresh()
    finally:
        fleet.bridge.close()


def test_a_replica_that_joins_trusts_what_the_first_machine_did(world: FleetWorld) -> None:
    trust(PUBLIC, default_trusted(world.settings("a").state_dir))
    world.init("a")
    world.join("b")
    assert trusted(world.settings("a")) == trusted(world.settings("b")) == {PUBLIC.key_id}


def test_a_key_is_trusted_and_taken_away_everywhere(fleet: FleetWorld) -> None:
    here, there = fleet.settings("a"), fleet.settings("b")
    assert trusted(there) == set()
    trust_key(here, PUBLIC)
    trust_key(here, PUBLIC)
    refresh(there)
    assert trusted(here) == trusted(there) == {PUBLIC.key_id}
    untrust_key(there, PUBLIC.key_id)
    refresh(here)
    assert trusted(here) == trusted(there) == set()
    with pytest.raises(ConfigError, match=PUBLIC.key_id):
        untrust_key(here, PUBLIC.key_id)


def test_a_command_asks_the_fleet_for_keys_first(fleet: FleetWorld) -> None:
    trust_key(fleet.settings("a"), PUBLIC)
    assert set(read_trusted(fleet.settings("b"))) == {PUBLIC.key_id}


def test_in_a_fleet_a_file_that_somebody_put_into_the_folder_counts_for_nothing(fleet: FleetWorld) -> None:
    settings = fleet.settings("b")
    trust(PUBLIC, default_trusted(settings.state_dir))
    assert trusted(settings) == set()
    trusted_path(settings).unlink()
    assert trusted(settings) == set()


def test_a_row_that_somebody_changed_is_not_taken(fleet: FleetWorld, postgres: Postgres) -> None:
    there = fleet.settings("b")
    trust_key(fleet.settings("a"), PUBLIC)
    refresh(there)
    body = json.dumps({OTHER.key_id: {"key": OTHER.raw().hex(), "added": 1.0}})
    postgres.psql(
        f"UPDATE shared_documents SET generation = generation + 1, body = '{body}' WHERE name = 'list:policy_keys'",
        fleet.url,
    )
    assert "policy_keys" in (refresh(there) or "")
    assert trusted(there) == {PUBLIC.key_id}


def test_a_proxys_login_may_not_add_a_key(fleet: FleetWorld, writer_url: str) -> None:
    settings = fleet.settings("a", writer_url)
    with pytest.raises(ConfigError, match="interlock_admin"):
        trust_key(settings, PUBLIC)


def test_without_a_fleet_keys_are_files(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    trust_key(settings, PUBLIC)
    assert trusted(settings) == {PUBLIC.key_id}
    untrust_key(settings, PUBLIC.key_id)
    assert trusted(settings) == set()
    with pytest.raises(ConfigError, match=r"\.\./x"):
        untrust_key(settings, "../x")


def test_a_setting_that_names_keys_counts_in_place_of_the_fleets(fleet: FleetWorld, tmp_path: Path) -> None:
    settings = fleet.settings("a", policy_keys=tmp_path / "own")
    trust(OTHER, tmp_path / "own")
    trust_key(fleet.settings("a"), PUBLIC)
    assert trusted(settings) == {OTHER.key_id}
