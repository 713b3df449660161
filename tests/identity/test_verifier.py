"""Agents by tokens: what is remembered, for how long, and what happens while an issuer cannot be asked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model import Principal
from proxy.identity import key_source, verifier
from proxy.identity.jwt import TokenError
from proxy.identity.settings import IdentitySettings
from proxy.identity.verifier import AgentVerifier
from tests.identity.test_spiffe import bundle_json
from tests.support.agent_issuer import agent_token
from tests.support.oidc_issuer import Issuer, new_key, start_issuer


def made(issuer: Issuer, *more: dict[str, Any], wait: float = 20, **changes: Any) -> AgentVerifier:
    okta = {"name": "okta", "type": "oidc", "issuer": issuer.url, "audience": "interlock", **changes}
    return AgentVerifier(IdentitySettings.model_validate({"providers": [okta, *more], "wait_seconds": wait}))


async def reason(agents: AgentVerifier, token: str) -> str:
    with pytest.raises(TokenError) as caught:
        await agents.verify(token)
    return caught.value.reason


async def test_a_verified_token_is_remembered_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_issuer() as issuer:
        agents, token = made(issuer, skew_seconds=0), agent_token(issuer)
        assert agents.known(token) is None
        principal = await agents.verify(token)
        assert agents.known(token) is principal
        assert (principal.agent, principal.identity and principal.identity.subject) == (
            "okta:billing-bot",
            "billing-bot",
        )
        monkeypatch.setattr(agents, "_clock", lambda: time.time() + 301)
        assert agents.known(token) is None
        assert await reason(agents, token) == "token_expired"


async def test_what_is_remembered_is_bounded_and_holds_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MAX_VERIFIED", 3)
    with start_issuer() as issuer:
        agents = made(issuer)
        tokens = [agent_token(issuer, sub=f"bot-{number}") for number in range(5)]
        for token in tokens:
            await agents.verify(token)
        assert [agents.known(token) is not None for token in tokens] == [False, False, True, True, True]
        assert not any(token in str(vars(agents)) for token in tokens)


async def test_a_refused_token_is_not_verified_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_issuer() as issuer:
        agents, token = made(issuer), agent_token(issuer, aud="them")
        assert await reason(agents, token) == "token_audience"
        monkeypatch.setattr(verifier, "parse_token", None)
        assert await reason(agents, token) == "token_audience"


async def test_a_token_waits_for_keys_for_a_bounded_time_and_the_fetch_goes_on() -> None:
    with start_issuer() as issuer:
        going, keys = asyncio.Event(), issuer.keys
        loop = asyncio.get_running_loop()
        held = threading.Event()

        def slow() -> dict[str, Any]:
            loop.call_soon_threadsafe(going.set)
            held.wait(20)
            return keys()

        issuer.keys = slow  # type: ignore[method-assign]
        agents, token = made(issuer, wait=0.3), agent_token(issuer)
        assert await reason(agents, token) == "issuer_unavailable"
        await asyncio.wait_for(going.wait(), 20)
        held.set()
        async with asyncio.timeout(20):
            while (await asyncio.gather(agents.verify(token), return_exceptions=True))[0].__class__ is not Principal:
                await asyncio.sleep(0.01)


async def test_an_issuer_that_is_down_has_its_own_reason_and_cached_keys_count() -> None:
    with start_issuer() as issuer:
        agents = made(issuer)
        await agents.verify(agent_token(issuer))
        issuer.down |= {"/keys", "/.well-known/openid-configuration"}
        assert (await agents.verify(agent_token(issuer, sub="second"))).agent == "okta:second"
        assert await reason(made(issuer), agent_token(issuer)) == "issuer_unavailable"


async def test_unknown_keys_make_nobody_fetch_more_often_than_allowed() -> None:
    with start_issuer() as issuer:
        agents = made(issuer)
        for number in range(20):
            assert await reason(agents, agent_token(issuer, {"kid": f"k{number}"})) == "token_key"
        assert issuer.asked.count("/keys") == 1


async def test_a_key_that_is_withdrawn_ends_what_was_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_source, "AGAIN_SECONDS", 0.0)
    with start_issuer() as issuer:
        agents, old = made(issuer), agent_token(issuer)
        await agents.verify(old)
        issuer.key = new_key()
        await agents.verify(agent_token(issuer))
        assert agents.known(old) is None
        assert await reason(agents, old) == "token_key"


async def test_the_agent_is_who_acts_and_the_claim_is_chosen() -> None:
    with start_issuer() as issuer:
        agents = made(issuer, agent="client_id")
        assert (await agents.verify(agent_token(issuer, client_id="c1"))).agent == "okta:c1"
        assert (await agents.verify(agent_token(issuer, client_id="c1", act={"sub": "bot"}))).agent == "okta:bot"
        assert await reason(agents, agent_token(issuer)) == "token_claims"
        assert await reason(agents, agent_token(issuer, client_id="c", act={"sub": 7})) == "token_claims"
        assert await reason(agents, agent_token(issuer, client_id="c", sub=None)) == "token_claims"


async def test_two_audiences_of_one_issuer_are_two_providers() -> None:
    with start_issuer() as issuer:
        second = {"name": "second", "type": "oidc", "issuer": issuer.url, "audience": "other"}
        agents = made(issuer, second)
        assert (await agents.verify(agent_token(issuer, aud="other"))).agent == "second:billing-bot"
        assert (await agents.verify(agent_token(issuer))).agent == "okta:billing-bot"
        assert await reason(agents, agent_token(issuer, aud="third")) == "token_audience"


async def test_a_service_account_is_named_by_namespace_and_account() -> None:
    with start_issuer() as issuer:
        cluster = {"name": "k8s", "type": "kubernetes", "issuer": issuer.url, "audience": "proxy"}
        agents = made(issuer, cluster | {"claims": ["/kubernetes.io/namespace"]})
        inside = {"namespace": "prod", "pod": {"name": "api-1", "uid": "u"}}
        token = agent_token(
            issuer, aud=["proxy"], sub="system:serviceaccount:prod:billing", **{"kubernetes.io": inside}
        )
        principal = await agents.verify(token)
        assert principal.agent == "k8s:prod/billing"
        assert principal.identity is not None
        assert principal.identity.data()["claims"] == {"/kubernetes.io/namespace": ["prod"]}
        assert await reason(agents, agent_token(issuer, aud="proxy", sub="system:node:n1")) == "token_claims"


async def test_a_jwt_svid_is_of_its_trust_domain(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_bytes(bundle_json())
    mesh = {"name": "mesh", "type": "spiffe", "trust_domain": "example.org", "audience": "spiffe://example.org/proxy"}
    mesh["bundle"] = str(tmp_path / "bundle.json")
    with start_issuer() as issuer:
        agents = made(issuer, mesh)
        svid = {"iss": None, "aud": ["spiffe://example.org/proxy"], "sub": "spiffe://example.org/billing"}
        assert (await agents.verify(agent_token(issuer, **svid))).agent == "spiffe://example.org/billing"
        for typ in ("JWT", "JOSE"):
            assert (await agents.verify(agent_token(issuer, {"typ": typ}, **svid))).authenticated
        assert await reason(agents, agent_token(issuer, {"typ": "at+jwt"}, **svid)) == "token_claims"
        assert await reason(agents, agent_token(issuer, **svid | {"sub": "spiffe://evil.org/x"})) == "token_issuer"
        assert await reason(agents, agent_token(issuer, **svid | {"aud": "x"})) == "token_audience"
        assert await reason(agents, agent_token(issuer, **svid | {"exp": None})) == "token_claims"


async def test_an_issuer_does_not_vouch_for_workloads_of_a_trust_domain(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text(json.dumps({"keys": []}))
    mesh = {"name": "mesh", "type": "spiffe", "trust_domain": "example.org", "audience": "interlock"}
    with start_issuer() as issuer:
        agents = made(issuer, mesh | {"bundle": str(tmp_path / "bundle.json")})
        token = agent_token(issuer, sub="spiffe://example.org/billing")
        assert (await agents.verify(token)).agent == "okta:spiffe://example.org/billing"


async def test_a_name_of_two_claims_says_for_whom_an_agent_acts() -> None:
    with start_issuer() as issuer:
        agents = made(issuer, agent=["sub", "act.sub"])
        assert (await agents.verify(agent_token(issuer, sub="alice", act={"sub": "bot"}))).agent == "okta:alice/bot"
        for sub in ("alice/bot", "", None, 7):
            assert await reason(agents, agent_token(issuer, sub=sub, act={"sub": "x"})) == "token_claims"
        assert await reason(agents, agent_token(issuer)) == "token_claims"
