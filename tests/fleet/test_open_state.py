from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.core.secret_variables import KEK_ENV
from proxy.errors import ConfigError
from proxy.fleet.open_state import find_fleet, find_fleet_with_key, open_pins, open_tokens
from proxy.fleet.shared_pins import SharedPins
from proxy.identity.token_file import AgentTokens
from proxy.store.pin_files import PinFiles
from tests.support.fleet_fixture import FleetWorld


def test_a_folder_of_no_fleet_keeps_its_own_files(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    assert find_fleet(settings) is None
    assert type(open_pins(settings)) is PinFiles
    open_tokens(AgentTokens, settings).add("bot")
    assert list(AgentTokens(tmp_path).names()) == ["bot"]


def test_a_replica_shares_its_pins(fleet: FleetWorld) -> None:
    assert type(open_pins(fleet.settings("a"), fresh=True)) is SharedPins
    found = find_fleet(fleet.settings("a"))
    assert found is not None
    assert found.refresh() is None


def test_a_replica_without_its_database_or_its_key_is_told(fleet: FleetWorld) -> None:
    with pytest.raises(ConfigError, match=r"belongs to the fleet .* no database_url is set"):
        find_fleet(Settings(state_dir=fleet.settings("a").state_dir))
    with pytest.raises(ConfigError, match="no key in env"):
        find_fleet_with_key(fleet.settings("a"), {KEK_ENV: ""})


def test_a_store_that_is_away_is_told_and_changes_nothing(fleet: FleetWorld) -> None:
    away = fleet.open("a", "postgresql://127.0.0.1:1/x")
    assert "cannot be used" in (away.refresh() or "")
