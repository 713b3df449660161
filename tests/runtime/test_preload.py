"""What is loaded before anything serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.errors import PolicyError
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
