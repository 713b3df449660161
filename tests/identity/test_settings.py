"""The file that names who vouches for agents, and what is said of its mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.identity.settings import load_identity

OIDC = {"name": "okta", "type": "oidc", "issuer": "https://id.example.com", "audience": "interlock"}
MESH = {"name": "mesh", "type": "spiffe", "trust_domain": "spiffe://example.org", "bundle": "/b.pem"}


def load(tmp_path: Path, *providers: dict[str, Any], default_agent: str = "agent", **more: Any) -> Any:
    path = tmp_path / "identity.yaml"
    path.write_text(json.dumps({"providers": providers, **more}))
    return load_identity(path, default_agent)


def test_without_a_file_nobody_else_vouches() -> None:
    assert load_identity(None, "agent") is None


def test_a_file_names_providers(tmp_path: Path) -> None:
    cluster = OIDC | {"name": "k8s", "type": "kubernetes", "token_review": True}
    found = load(tmp_path, OIDC, MESH, cluster)
    assert [one.name for one in found.providers] == ["okta", "mesh", "k8s"]
    assert found.providers[0].audience == ("interlock",)
    assert found.providers[1].trust_domain == "example.org"


@pytest.mark.parametrize(
    ("providers", "said"),
    [
        ([], "at least 1 item"),
        ([OIDC | {"type": "saml"}], "'oidc', 'kubernetes', 'spiffe'"),
        ([OIDC | {"issuer": "http://id.example.com"}], "https://"),
        ([OIDC | {"algorithms": ["HS256"]}], "'HS256' is not accepted"),
        ([OIDC | {"algorithms": ["none"]}], "'none' is not accepted"),
        ([{**OIDC, "audience": []}], "audience"),
        ([{name: value for name, value in OIDC.items() if name != "audience"}], "audience: Field required"),
        ([OIDC | {"audiance": "x"}], "audiance"),
        ([OIDC | {"name": "a:b"}], "name"),
        ([OIDC, OIDC], "two providers have the name 'okta'"),
        ([MESH, MESH | {"name": "m2"}], "two providers have the trust_domain 'example.org'"),
        ([OIDC | {"jwks_url": "https://a/k", "jwks_file": "/k"}], "two places"),
        ([OIDC | {"keys_seconds": 10}], "keys_seconds"),
        ([MESH | {"trust_domain": "Example.org"}], "trust domain such as"),
        ([OIDC | {"skew_seconds": 3600}], "skew_seconds"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, providers: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, *providers)
    assert said in str(caught.value)
    assert "identity.yaml" in str(caught.value)


@pytest.mark.parametrize("name", ["okta:boss", "spiffe://example.org/x"])
def test_the_name_of_callers_without_a_token_does_not_look_proven(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="looks like an agent"):
        load(tmp_path, OIDC, default_agent=name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        load_identity(tmp_path / "nowhere.yaml", "agent")
