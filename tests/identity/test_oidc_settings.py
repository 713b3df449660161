"""The file that says how operators sign in by OpenID Connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.core.approvals import Role
from proxy.errors import ConfigError
from proxy.identity.oidc_settings import RoleMap, load_oidc

URL = "https://console.example.com"
GOOD: dict[str, Any] = {"issuer": "https://id.example.com", "client_id": "us", "roles": {"claim": "g", "viewer": ["v"]}}


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "oidc.yaml"
    file.write_text(json.dumps(GOOD | changes))
    return file


def test_a_file_is_read_and_none_is_none(tmp_path: Path) -> None:
    assert load_oidc(None, None) is None
    found = load_oidc(write(tmp_path), URL)
    assert found is not None
    assert (found.operator, found.secret()) == ("sub", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "http://id.example.com"},
        {"issuer": "https://user@id.example.com"},
        {"issuer": "https://id.example.com?x=1"},
        {"issuer": "ftp://localhost"},
        {"client_id": ""},
        {"client_secret": "in the clear"},
        {"roles": {"claim": "g"}},
        {"roles": {"claim": "g", "root": ["x"]}},
        {"client_secret_file": "/nowhere"},
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_oidc(write(tmp_path, **changes), URL)
    assert "in the clear" not in str(error.value)


@pytest.mark.parametrize("content", ["", "[", "x", "issuer: a\nissuer: b"])
def test_what_is_no_such_file_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "oidc.yaml").write_text(content)
    with pytest.raises(ConfigError):
        load_oidc(tmp_path / "oidc.yaml", URL)


def test_the_issuer_needs_a_url_to_lead_back_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="console_url"):
        load_oidc(write(tmp_path), None)


@pytest.mark.parametrize(
    ("value", "role"),
    [
        ("a", Role.ADMIN),
        (["v", "a"], Role.ADMIN),
        (["v", "p"], Role.APPROVER),
        (["v"], Role.VIEWER),
        ([], None),
        (None, None),
        (["A"], None),
        (["a", 1], None),
        ({"a": 1}, None),
        ("v a", None),
    ],
)
def test_the_highest_role_counts_and_an_odd_claim_gives_none(value: Any, role: Role | None) -> None:
    assert RoleMap(claim="g", admin=("a",), approver=("p",), viewer=("v",)).role({"g": value}) is role
