"""Credentials that replicas share: names, placeholders, bindings and sources; never a value."""

from __future__ import annotations

import concurrent.futures
import json
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.fleet.open_state import open_vault
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Entry, FileSource, VaultFile
from tests.support.fleet_fixture import FleetWorld
from tests.support.postgres import Postgres


def entry(name: str = "a", path: str = "/s") -> Entry:
    return Entry(placeholder=make(name), source=FileSource(path=path), added=1.0)


def names(fleet: FleetWorld, replica: str) -> list[str]:
    """Return what a replica has after it asked the store."""
    assert fleet.open(replica).refresh() is None
    return list(VaultFile(fleet.settings(replica).state_dir).read().credentials)


def test_what_one_replica_adds_changes_and_revokes_counts_at_all(fleet: FleetWorld) -> None:
    made = entry()
    open_vault(fleet.settings("a")).add("a", made)
    assert names(fleet, "b") == ["a"]
    file = VaultFile(fleet.settings("b").state_dir)
    assert file.path.stat().st_mode & 0o777 == 0o600
    open_vault(fleet.settings("b")).change("a", lambda known: known.model_copy(update={"ttl": 7.0}))
    assert names(fleet, "a") == ["a"]
    assert VaultFile(fleet.settings("a").state_dir).read().credentials["a"].ttl == 7.0
    open_vault(fleet.settings("a")).revoke("a")
    assert names(fleet, "b") == []
    assert [stone.placeholder for stone in file.read().revoked] == [made.placeholder]


def test_a_fleet_without_credentials_has_no_file(fleet: FleetWorld) -> None:
    assert names(fleet, "b") == []
    assert not VaultFile(fleet.settings("b").state_dir).path.exists()


def test_the_first_machines_credentials_are_the_fleets_and_one_with_others_does_not_join(world: FleetWorld) -> None:
    VaultFile(world.settings("a").state_dir).add("a", entry())
    world.init("a")
    world.join("b")
    assert names(world, "b") == ["a"]
    VaultFile(world.settings("c").state_dir).add("other", entry("other"))
    with pytest.raises(ConfigError, match="has its own vault, which joining would overwrite"):
        world.join("c")


def test_many_that_add_the_first_at_once_lose_nothing(fleet: FleetWorld) -> None:
    def add(number: int) -> None:
        open_vault(fleet.settings("ab"[number % 2])).add(f"n{number}", entry(f"n{number}"))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(8)))
    assert set(names(fleet, "a")) == set(names(fleet, "b")) == {f"n{number}" for number in range(8)}


def test_a_row_of_somebody_with_the_database_alone_is_not_taken(fleet: FleetWorld, postgres: Postgres) -> None:
    settings = fleet.settings("b")
    open_vault(fleet.settings("a")).add("a", entry(path="/good"))
    assert names(fleet, "b") == ["a"]
    for change in (
        "body = replace(convert_from(body, 'utf8'), '/good', '/evil')::bytea",
        "generation = generation + 1",
        "generation = generation + 1, name = 'list:vault', seal = '\\x00'",
    ):
        postgres.psql(f"UPDATE shared_documents SET {change} WHERE name = 'list:vault'", fleet.url)
        for _ in range(2):
            fleet.open("b").refresh()
        assert VaultFile(settings.state_dir).read().credentials["a"].source == FileSource(path="/good")
        with pytest.raises(ConfigError, match="was changed by somebody"):
            open_vault(settings).add("b", entry("b"))
    postgres.psql("DELETE FROM shared_documents WHERE name = 'list:vault'", fleet.url)
    assert "older list:vault (generation 0) than this replica (1)" in (fleet.open("b").refresh() or "")
    assert list(VaultFile(settings.state_dir).read().credentials) == ["a"]
    with pytest.raises(ConfigError, match="older vault"):
        open_vault(settings).add("b", entry("b"))


def test_a_row_that_somebody_added_is_not_taken(fleet: FleetWorld, postgres: Postgres, tmp_path: Path) -> None:
    body = json.dumps({"credentials": {"a": entry().model_dump(mode="json")}})
    postgres.psql(
        f"INSERT INTO shared_documents VALUES ('list:vault', 1, 'x', convert_to('{body}', 'utf8'), '\\x00')", fleet.url
    )
    assert "list:vault was changed by somebody" in (fleet.open("b").refresh() or "")
    assert not VaultFile(fleet.settings("b").state_dir).path.exists()


def test_a_proxys_login_may_not_add(fleet: FleetWorld, writer_url: str) -> None:
    with pytest.raises(ConfigError, match=r"may not change the fleet's vault: .* interlock_admin"):
        open_vault(fleet.settings("a", writer_url)).add("a", entry())
