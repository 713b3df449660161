"""What is loaded before anything serves."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from proxy.config import Settings
from proxy.errors import ConfigError, PolicyError
from proxy.injection import matcher
from proxy.redact import hyperscan_db
from proxy.runtime import preload
from proxy.runtime.worker_process import fork_worker
from proxy.system.package_data import profile_file

POSTGRES = SecretStr("postgresql://127.0.0.1/interlock")


def test_patterns_of_incoming_text_that_cannot_be_compiled_stop_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ndefault: allow\nincoming:\n  - {id: a, action: withhold}\n")
    settings = Settings(policy=policy, state_dir=tmp_path / "state")

    def fail(_cache: object) -> None:
        raise MemoryError("no room for patterns")

    monkeypatch.setattr(preload, "prepare_injection", fail)
    with pytest.raises((PolicyError, MemoryError)):
        preload.preload(settings)


def test_a_replica_is_never_taken_for_a_folder_that_is_alone(tmp_path: Path) -> None:
    alone = Settings(policy=tmp_path / "policy.yaml", state_dir=tmp_path)
    member = tmp_path / "fleet.json"
    member.write_text('{"fleet_id": "f", "replica_id": "r", "generations": {}}')
    with pytest.raises(ConfigError, match="belongs to the fleet f"):
        preload.preload(alone)
    member.write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        preload.preload(alone)
    member.unlink()
    with pytest.raises(ConfigError, match="needs database_url"):
        preload.preload(alone.model_copy(update={"key_encryption_key": "env:KEY"}))


@pytest.mark.parametrize("profile", [None, "balanced", "strict"])
def test_a_first_start_compiles_in_another_process_and_the_next_load_compiles_nothing(
    profile: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = profile_file(profile) if profile else tmp_path / "policy.yaml"
    if not profile:
        policy.write_text("version: 1\ndefault: allow\n")
    monkeypatch.setattr(matcher, "_SEARCHES", {})  # nor is it kept from another test
    settings = Settings(policy=policy, state_dir=tmp_path / "state")
    assert preload.is_first_start(settings)
    assert fork_worker(0, lambda _: preload.fill_caches(settings), lambda: None).reap() == 0
    assert not preload.is_first_start(settings)
    monkeypatch.setattr(hyperscan_db, "compile_all", None)
    _, findings = preload.preload(settings).masker.mask("me@example.com", ["pii"])
    assert findings


def test_what_a_replica_shares_is_never_made_ahead(tmp_path: Path) -> None:
    alone = Settings(policy=tmp_path / "policy.yaml", state_dir=tmp_path)
    assert preload.is_first_start(alone)
    for changes in ({"key_encryption_key": "env:KEY"}, {"policy_source": "pushed"}, {"database_url": POSTGRES}):
        assert not preload.is_first_start(alone.model_copy(update=changes))
