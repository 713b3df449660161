"""What asks others outside is opened only where the settings name it."""

from __future__ import annotations

from pathlib import Path

from proxy.config import Settings
from proxy.runtime.outside_services import open_operator_verifier, open_services, open_verifier


def test_without_settings_nobody_is_asked(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path)
    assert (open_services(settings), open_verifier(settings), open_operator_verifier(settings)) == (None, None, None)


def test_a_service_of_the_settings_is_known_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "external.yaml"
    file.write_text("services: [{name: opa, type: opa, url: 'http://127.0.0.1:9/v1/data/x'}]\n")
    opened = open_services(Settings(state_dir=tmp_path, external=file))
    assert opened is not None
    assert set(opened.names) == {"opa"}
