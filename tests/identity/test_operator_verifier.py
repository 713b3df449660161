"""Operators at the admin API by their issuer's tokens: roles by claims, and nothing for agents' tokens."""

from __future__ import annotations

import time
from typing import Any

import pytest

from proxy.core.approvals import Operator, Role
from proxy.identity.jwt import TokenError
from proxy.identity.oidc_settings import OidcSettings
from proxy.identity.operator_verifier import OLDEST_SECONDS, OperatorVerifier
from tests.support.agent_issuer import agent_token
from tests.support.oidc_issuer import Issuer, start_issuer

ROLES = {"claim": "groups", "admin": ["leads"], "approver": ["sre"], "viewer": ["staff"]}


def verifier(issuer: Issuer, **more: Any) -> OperatorVerifier:
    given = {"issuer": issuer.url, "client_id": "interlock", "roles": ROLES, **more}
    return OperatorVerifier(OidcSettings.model_validate(given))


async def reason(made: OperatorVerifier, token: str) -> str:
    with pytest.raises(TokenError) as caught:
        await made.operator(token)
    return caught.value.reason


async def test_claims_give_name_role_and_whose_agents_run() -> None:
    with start_issuer() as issuer:
        made = verifier(issuer, agents=["okta:{sub}/*"])
        token = agent_token(issuer, sub="ann", groups=["staff", "sre"])
        operator = await made.operator(token)
        assert operator == Operator("ann", Role.APPROVER, frozenset({"okta:ann/*"}))
        assert operator.runs("okta:ann/bot")
        assert not operator.runs("okta:anna/bot")


async def test_a_claim_with_a_star_in_it_is_no_glob() -> None:
    with start_issuer() as issuer:
        made = verifier(issuer, agents=["okta:{team}/*"])
        operator = await made.operator(agent_token(issuer, sub="ann", team="*"))
        assert not operator.runs("okta:bob/bot")
        assert operator.runs("okta:*/bot")
        assert await reason(made, agent_token(issuer, sub="ann")) == "token_claims"


async def test_other_tokens_open_nothing() -> None:
    now = int(time.time())
    with start_issuer() as issuer:
        made = verifier(issuer)
        for expected, claims in (
            ("token_claims", {"groups": ["guests"]}),
            ("token_claims", {"sub": "x y"}),
            ("token_audience", {"aud": "grafana"}),
            ("token_audience", {"aud": ["interlock", "grafana"]}),
            ("token_audience", {"azp": "grafana"}),
            ("token_issuer", {"iss": "https://evil.example.com"}),
            ("token_expired", {"exp": now - 100}),
            ("token_expired", {"iat": now - OLDEST_SECONDS - 10, "exp": now + 10**6}),
            ("token_expired", {"iat": None}),
        ):
            assert await reason(made, agent_token(issuer, **claims)) == expected, claims
        assert await reason(made, agent_token(issuer, {"kid": "other"})) == "token_key"
        issuer.down |= {"/keys", "/.well-known/openid-configuration"}
        assert await reason(verifier(issuer), agent_token(issuer)) == "issuer_unavailable"
