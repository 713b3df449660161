"""The file that names services, and what is said of its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.external.settings import load_external

OPA = {"name": "opa", "type": "opa", "url": "http://127.0.0.1:8181/v1/data/interlock/allow"}


def load(tmp_path: Path, *services: dict[str, Any]) -> Any:
    path = tmp_path / "external.yaml"
    path.write_text(json.dumps({"services": services}))
    return load_external(path)


def test_a_file_names_services(tmp_path: Path) -> None:
    assert load_external(None) is None
    (found,) = load(tmp_path, OPA).services
    assert (found.name, found.timeout_seconds, found.cache_seconds) == ("opa", 1.0, 0.0)


@pytest.mark.parametrize(
    ("services", "said"),
    [
        ([], "at least 1 item"),
        ([OPA | {"type": "xacml"}], "'opa' or 'cedar'"),
        ([OPA | {"url": "http://opa.example.com/v1/data"}], "https://"),
        ([OPA | {"timeout_seconds": 0}], "timeout_seconds"),
        ([OPA | {"timeout": 1}], "timeout"),
        ([OPA, OPA], "two services have the name 'opa'"),
        ([OPA | {"token_file": "/nowhere/token"}], "there is no file '/nowhere/token'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, services: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *services)
    assert said in str(caught.value)
    assert "external.yaml" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_external(tmp_path / "nowhere.yaml")
