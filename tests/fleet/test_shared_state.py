"""What a replica takes over, and what it leaves: keys and problems. Pins, lists and joins have files of their own."""

from __future__ import annotations

import pytest

from proxy.errors import ConfigError
from proxy.fleet.mirror import STATE
from proxy.fleet.open_state import find_fleet, open_tokens
from proxy.fleet.sealing import SealError
from proxy.identity.token_file import AgentTokens
from tests.support.fleet_fixture import FleetWorld
from tests.support.postgres import Postgres


def test_without_the_key_encryption_key_lists_are_taken_over_and_keys_are_not(fleet: FleetWorld) -> None:
    without = find_fleet(fleet.settings("b"))
    assert without is not None
    open_tokens(AgentTokens, fleet.settings("a")).add("bot")
    assert without.refresh() is None
    assert list(AgentTokens(fleet.settings("b").state_dir).names()) == ["bot"]
    with pytest.raises(ConfigError, match="need the setting key_encryption_key"):
        without.state.seal_secret("mask", 2, b"x" * 32)


def test_one_row_that_cannot_be_opened_does_not_hold_up_the_others(fleet: FleetWorld, postgres: Postgres) -> None:
    open_tokens(AgentTokens, fleet.settings("a")).add("bot")
    postgres.psql("UPDATE shared_documents SET generation = 9, seal = 'x' WHERE name = 'list:operators'", fleet.url)
    problem = fleet.open("b").refresh()
    assert problem is not None
    assert "list:operators was changed by somebody" in problem
    assert list(AgentTokens(fleet.settings("b").state_dir).names()) == ["bot"]


def test_a_folder_without_its_state_key_trusts_nothing(fleet: FleetWorld) -> None:
    state = fleet.open("b").state
    state.mirror.file(STATE).unlink()
    with pytest.raises(SealError, match="is missing"):
        fleet.open("b").state.seal_list("agents", 2, b"{}")


def test_a_fleet_that_is_gone_from_the_database_is_told(fleet: FleetWorld, postgres: Postgres) -> None:
    postgres.psql("DELETE FROM fleet", fleet.url)
    assert "the database has no fleet" in (fleet.open("a").refresh() or "")
