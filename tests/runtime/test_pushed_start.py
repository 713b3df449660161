"""The start of a replica whose policy is pushed: with and without its store, and with what it knew last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.errors import ConfigError, PolicyError
from proxy.rollout.keys import default_trusted, trust
from proxy.rollout.release_file import ReleaseFile
from proxy.rollout.step import Step, sign
from proxy.runtime.preload import preload
from proxy.runtime.pushed_start import keys_of, open_pushed
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.rollout.fixtures import OTHER, OTHER_KEY, PUBLIC, SIGNER, bundle, step

STABLE = bundle("shell")
AWAY = "postgresql://nobody@/nothing?host=/nonexistent"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "own.yaml").write_text("version: 1\ndefault: deny\n")
    trust(PUBLIC, default_trusted(tmp_path / "state"))
    return Settings(state_dir=tmp_path / "state", policy=tmp_path / "own.yaml", policy_source="pushed")


def publish(settings: Settings, made: Step, signer: object = SIGNER) -> None:
    async def work() -> None:
        database = open_database(settings.postgres, settings.state_dir)
        await Rollout(database).add(sign(made, *signer), {STABLE.digest: STABLE.text})  # type: ignore[misc]
        await database.close()

    asyncio.run(work())


def away(settings: Settings) -> Settings:
    return Settings.model_validate(settings.model_dump() | {"database_url": AWAY})


def test_where_nothing_was_pushed_the_files_count(settings: Settings) -> None:
    assert preload(settings).policy.current().default == "deny"


def test_what_was_pushed_counts_from_the_start(settings: Settings) -> None:
    publish(settings, step(2, STABLE))
    assert preload(settings).policy.current().version == f"v2-{STABLE.digest}"


def test_without_the_store_the_last_policy_known_counts(settings: Settings) -> None:
    publish(settings, step(2, STABLE))
    preload(settings)
    assert preload(away(settings)).policy.current().version == f"v2-{STABLE.digest}"


def test_without_the_store_and_with_nothing_known_it_does_not_start(settings: Settings) -> None:
    """Its own files may be laxer than what is in force elsewhere."""
    with pytest.raises(ConfigError, match="cannot be asked which version is in force"):
        preload(away(settings))


def test_where_no_step_can_be_verified_it_does_not_start(settings: Settings) -> None:
    publish(settings, step(2, STABLE), (OTHER.key_id, OTHER_KEY))
    with pytest.raises(ConfigError, match="no version in the store can be used here"):
        preload(settings)


def test_what_somebody_changed_in_the_state_folder_stops_the_start(settings: Settings) -> None:
    publish(settings, step(2, STABLE))
    preload(settings)
    file = ReleaseFile(settings.state_dir).path
    file.write_text(file.read_text().replace("no-shell", "no-other"))
    with pytest.raises(PolicyError, match="not the one that was signed"):
        preload(away(settings))


def test_the_keys_of_the_settings_are_read_anew_each_time(settings: Settings, tmp_path: Path) -> None:
    named = Settings.model_validate(settings.model_dump() | {"policy_keys": tmp_path / "keys"})
    keys = keys_of(named)
    assert keys() == {}
    trust(OTHER, tmp_path / "keys")
    assert set(keys()) == {OTHER.key_id}
    publish(named, step(2, STABLE))
    with pytest.raises(ConfigError, match="not trusted"):
        open_pushed(named, None, None)
