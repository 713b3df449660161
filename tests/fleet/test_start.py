from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.core.secret_variables import KEK_ENV
from proxy.errors import ConfigError
from proxy.fleet.open_state import open_tokens
from proxy.fleet.start import start_fleet
from proxy.identity.token_file import AgentTokens
from tests.support.fleet_fixture import ENVIRON, FleetWorld

AWAY = "postgresql://127.0.0.1:1/x"


def test_without_postgres_nothing_is_asked(tmp_path: Path) -> None:
    assert start_fleet(Settings(state_dir=tmp_path), {}) is None
    with pytest.raises(ConfigError, match="key_encryption_key needs database_url"):
        start_fleet(Settings(state_dir=tmp_path, key_encryption_key=f"env:{KEK_ENV}"), ENVIRON)


def test_a_start_takes_over_what_happened_meanwhile(fleet: FleetWorld) -> None:
    token = open_tokens(AgentTokens, fleet.settings("a")).add("bot")
    started = start_fleet(fleet.settings("b"), ENVIRON)
    assert started is not None
    assert started.keys_at_start == started.state.mirror.key_ids()
    assert AgentTokens(fleet.settings("b").state_dir).holder(token) == "bot"


def test_a_start_mends_files_that_somebody_changed_here(fleet: FleetWorld) -> None:
    mask = fleet.settings("b").state_dir / "keys" / "mask.key"
    right = mask.read_bytes()
    mask.write_bytes(bytes(32))
    (fleet.settings("b").state_dir / "agents.json").unlink()
    start_fleet(fleet.settings("b"), ENVIRON)
    assert mask.read_bytes() == right
    assert AgentTokens(fleet.settings("b").state_dir).path.exists()


def test_a_proxy_beside_a_fleet_is_told_to_join(fleet: FleetWorld) -> None:
    alone = fleet.settings("new").model_copy(update={"key_encryption_key": None})
    with pytest.raises(ConfigError, match="has not joined it"):
        start_fleet(alone, {})


def test_a_database_without_a_fleet_is_used_as_before(world: FleetWorld) -> None:
    alone = world.settings("a").model_copy(update={"key_encryption_key": None})
    assert start_fleet(alone, {}) is None
    with pytest.raises(ConfigError, match="the database has no fleet; run `interlock fleet init`"):
        start_fleet(world.settings("a"), ENVIRON)


def test_what_was_never_known_does_not_start_without_the_database(fleet: FleetWorld) -> None:
    assert start_fleet(fleet.settings("b", AWAY), ENVIRON) is not None
    with pytest.raises(ConfigError, match="has joined no fleet, and the store cannot be asked"):
        start_fleet(fleet.settings("new", AWAY), ENVIRON)
    without_key = fleet.settings("new", AWAY).model_copy(update={"key_encryption_key": None})
    assert start_fleet(without_key, {}) is None
