"""What is loaded before anything serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.errors import ConfigError, PolicyError
from proxy.runtime import preload


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
