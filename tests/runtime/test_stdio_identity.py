"""Who calls over stdio: by a token, or by the name of the settings where none is required."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.config import load_settings
from proxy.core.model import Principal
from proxy.errors import ConfigError
from proxy.identity.token_file import AgentTokens
from proxy.runtime.stdio_identity import stdio_principal
from tests.support.agent_issuer import agent_token
from tests.support.oidc_issuer import start_issuer


def caller(tmp_path: Path, environ: dict[str, str], **more: Any) -> Principal:
    return stdio_principal(load_settings({"state_dir": tmp_path, **more}, environ={}).settings, environ)


def test_without_a_token_it_is_the_default_agent_unless_one_is_required(tmp_path: Path) -> None:
    assert caller(tmp_path, {}) == Principal("agent")
    with pytest.raises(ConfigError, match="INTERLOCK_AGENT_TOKEN"):
        caller(tmp_path, {}, agent_auth="required")


def test_a_token_of_our_own_names_its_agent(tmp_path: Path) -> None:
    token = AgentTokens(tmp_path).add("ci")
    (tmp_path / "token").write_text(token + "\n")
    for environ in ({"INTERLOCK_AGENT_TOKEN": token}, {"INTERLOCK_AGENT_TOKEN_FILE": str(tmp_path / "token")}):
        assert caller(tmp_path, environ, agent_auth="required") == Principal("ci", authenticated=True)
    with pytest.raises(ConfigError, match="no agent's"):
        caller(tmp_path, {"INTERLOCK_AGENT_TOKEN": "ilk_wrong"})


def test_a_token_of_another_issuer_is_verified(tmp_path: Path) -> None:
    with start_issuer() as issuer:
        okta = {"name": "okta", "type": "oidc", "issuer": issuer.url, "audience": "interlock"}
        (tmp_path / "identity.yaml").write_text(json.dumps({"providers": [okta], "wait_seconds": 20}))
        identity = {"identity": tmp_path / "identity.yaml"}
        found = caller(tmp_path, {"INTERLOCK_AGENT_TOKEN": agent_token(issuer)}, **identity)
        assert (found.agent, found.authenticated) == ("okta:billing-bot", True)
        with pytest.raises(ConfigError, match="token_audience"):
            caller(tmp_path, {"INTERLOCK_AGENT_TOKEN": agent_token(issuer, aud="x")}, **identity)
        with pytest.raises(ConfigError, match="identity names no issuers"):
            caller(tmp_path, {"INTERLOCK_AGENT_TOKEN": agent_token(issuer)})
