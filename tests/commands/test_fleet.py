"""`interlock fleet`: made, listed, forgotten, sealed anew. Replicas that run are in tests/daemon/test_fleet.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.core.secret_variables import KEK_ENV
from tests.support.fleet_fixture import KEK, OTHER_KEK, FleetWorld
from tests.support.harness import interlock_cli
from tests.support.postgres import Postgres


@pytest.fixture
def options(tmp_path: Path, database_url: str) -> list[str]:
    config = tmp_path / "interlock.yaml"
    config.write_text(json.dumps({"database_url": database_url, "key_encryption_key": {"env": KEK_ENV}}))
    return ["--config", str(config), "--state-dir", str(tmp_path / "a")]


def test_a_fleet_is_made_listed_and_sealed_anew(
    options: list[str], database_url: str, postgres: Postgres, tmp_path: Path
) -> None:
    env = {KEK_ENV: KEK, "NEW_KEK": OTHER_KEK}
    made = interlock_cli("fleet", "init", *options, "--json", env=env)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["documents"] == 10
    again = interlock_cli("fleet", "init", *options, env=env)
    assert (again.returncode, "already" in again.stderr) == (1, True)
    empty = interlock_cli("fleet", "status", *options, env=env)
    assert (empty.returncode, "No replica has started yet" in empty.stdout + empty.stderr) == (0, True)
    postgres.psql(
        "INSERT INTO fleet_replicas VALUES "
        "('r1', 'h\x1b[31m', '1', 11, 'p', 'k', 1, 3, 4, 'odd', now(), now() - interval '1 hour')",
        database_url,
    )
    listed = interlock_cli("fleet", "status", *options, env=env)
    assert listed.returncode == 1
    assert "silent" in listed.stdout
    assert "odd" in listed.stdout
    assert "\x1b[31m" not in listed.stdout
    row = json.loads(interlock_cli("fleet", "status", *options, "--json", env=env).stdout)
    assert (row["replica_id"], row["state"], row["lag_seconds"]) == ("r1", "silent", 3)
    assert interlock_cli("fleet", "forget", "r1", *options, env=env).returncode == 0
    assert "no replica 'r1'" in interlock_cli("fleet", "forget", "r1", *options, env=env).stderr
    sealed = interlock_cli("fleet", "rekey", "--new-key", "env:NEW_KEK", *options, "--json", env=env)
    assert json.loads(sealed.stdout)["sealed"] == 7
    world = FleetWorld(tmp_path, database_url)
    assert world.join("b", OTHER_KEK).documents == 10


def test_without_a_database_or_a_fleet_it_says_so(options: list[str], tmp_path: Path) -> None:
    assert "has no fleet" in interlock_cli("fleet", "status", *options).stderr
    alone = ["--state-dir", str(tmp_path / "x")]
    for words in (["status"], ["forget", "r"], ["init"], ["rekey", "--new-key", "env:X"]):
        result = interlock_cli("fleet", *words, *alone, cwd=tmp_path / "..")
        assert result.returncode == 1
        assert "shares a Postgres" in result.stderr
