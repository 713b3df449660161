"""The client of an issuer: what it asks, and what it never does. Logins are in test_oidc_page.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from proxy.console.id_token import OidcError
from proxy.console.oidc import IssuerDownError, OidcClient
from proxy.identity import issuer_http
from proxy.identity.oidc_settings import OidcSettings, RoleMap
from tests.support.oidc_issuer import CLIENT, Issuer, start_issuer

URL = "https://console.example.com"
ROLES = RoleMap(claim="groups", viewer=("staff",))


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with start_issuer() as started:
        yield started


def client(issuer: str) -> OidcClient:
    return OidcClient(OidcSettings(issuer=issuer, client_id=CLIENT, roles=ROLES), URL)


async def test_every_login_has_secrets_of_its_own_and_one_way_back(issuer: Issuer) -> None:
    asking = client(issuer.url)
    first, where = await asking.begin("/calls")
    second, _ = await asking.begin("/calls")
    assert not {first.state, first.nonce, first.verifier} & {second.state, second.nonce, second.verifier}
    query = parse_qs(urlsplit(where).query)
    assert query["redirect_uri"] == [f"{URL}/login/oidc/callback"]
    assert query["code_challenge_method"] == ["S256"]
    assert first.verifier not in where


async def test_kept_answers_are_asked_for_again_after_an_hour(issuer: Issuer) -> None:
    now = [1e9]
    asking = OidcClient(OidcSettings(issuer=issuer.url, client_id=CLIENT, roles=ROLES), URL, lambda: now[0])
    issuer.asked.clear()
    for seconds in (0, 3599, 1):
        now[0] += seconds
        await asking.begin("/")
    assert len(issuer.asked) == 2


async def test_an_issuer_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_http, "ASK_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with pytest.raises(IssuerDownError):
            await client(f"http://127.0.0.1:{silent.getsockname()[1]}").begin("/")
        port = silent.getsockname()[1]
    with pytest.raises(IssuerDownError):
        await client(f"http://127.0.0.1:{port}").begin("/")


async def test_an_answer_that_is_too_large_is_refused(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_http, "MAX_ANSWER", 10)
    with pytest.raises(OidcError, match="too large"):
        await client(issuer.url).begin("/")
