"""Sign-in by OpenID Connect, against a real issuer: what is right, and everything that is not."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
import pytest_asyncio
from joserfc import jwk, jwt

from proxy.console import door, oidc
from proxy.core.approvals import Role
from proxy.errors import AuditUnavailableError, ConfigError
from proxy.identity.jwt import TokenError
from proxy.identity.oidc_settings import load_oidc
from proxy.identity.operator_verifier import OperatorVerifier
from proxy.twophase.review import ReviewError
from tests.support.console_fixture import URL, Desk, open_desk
from tests.support.oidc_issuer import CLIENT, SECRET, Issuer, forge, new_key, start_issuer
from tests.support.proposal_fixture import new_proposal

TICKET = "interlock-8090-oidc"


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    monkeypatch.setattr(door, "WRONG_SECONDS", 0.0)
    with start_issuer() as started:
        yield started


def write_settings(folder: Path, issuer: str, **more: Any) -> Path:
    secret = folder / "oidc.secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    roles = {"claim": "groups", "admin": ["leads"], "approver": ["sre"], "viewer": ["staff"]}
    content = {"issuer": issuer, "client_id": CLIENT, "client_secret_file": str(secret), "roles": roles} | more
    (folder / "oidc.yaml").write_text(json.dumps(content))
    return folder / "oidc.yaml"


@pytest_asyncio.fixture
async def desk(tmp_path: Path, issuer: Issuer) -> AsyncIterator[Desk]:
    file = write_settings(tmp_path, issuer.url)
    async with open_desk(tmp_path, console_url=URL, console_oidc=file) as opened:
        yield opened


async def begin(desk: Desk, issuer: Issuer, to: str = "/approvals") -> str:
    """Follow the browser to the issuer and agree; return the path that the issuer sends it back to."""
    there = (await desk.http.get("/login/oidc", params={"next": to})).headers["location"]
    assert there.startswith(f"{issuer.url}/authorize?")
    back = issuer.authorize(dict(parse_qsl(urlsplit(there).query)))
    assert back.startswith(f"{URL}/login/oidc/callback?")
    return back.removeprefix(URL)


async def sign_in(desk: Desk, issuer: Issuer) -> httpx2.Response:
    return await desk.http.get(await begin(desk, issuer))


def refused(desk: Desk, answer: httpx2.Response, status: int = 403) -> None:
    assert answer.status_code == status, answer.text
    assert "interlock-8090" not in desk.http.cookies
    assert "Signing in did not work" in answer.text
    assert "Operator&#39;s token" in answer.text or "Operator's token" in answer.text


async def test_claims_become_an_operator_and_a_role(desk: Desk, issuer: Issuer) -> None:
    answer = await sign_in(desk, issuer)
    assert answer.status_code == 200
    place = next(one.path for one in desk.http.cookies.jar if one.name == "interlock-8090")
    assert f'content="0; url={place}approvals"' in answer.text
    page = (await desk.http.get("/calls")).text
    assert "ann<small>approver</small>" in page
    assert desk.sink.kinds() == ["operator_login"]
    assert (desk.sink.events[0].detail["operator"], desk.sink.events[0].detail["presented"]) == ("ann", "oidc")


async def test_the_ticket_can_come_back_from_another_site_and_the_session_cannot(desk: Desk, issuer: Issuer) -> None:
    there = await desk.http.get("/login/oidc")
    assert f"{TICKET}=" in there.headers["set-cookie"]
    assert "SameSite=lax" in there.headers["set-cookie"]
    assert "HttpOnly" in there.headers["set-cookie"]
    answer = await sign_in(desk, issuer)
    (session,) = [one for one in answer.headers.get_list("set-cookie") if one.startswith("interlock-8090=")]
    assert "SameSite=strict" in session


NOW = int(time.time())
WRONG_CLAIMS: list[dict[str, Any]] = [
    {"aud": "other"},
    {"aud": ["other"]},
    {"aud": [CLIENT, "other"]},
    {"aud": None},
    {"aud": []},
    {"aud": [CLIENT, "other"], "azp": "other"},
    {"azp": "other"},
    {"iss": "https://evil.example"},
    {"iss": None},
    {"exp": NOW - 3600},
    {"exp": None},
    {"exp": "9999999999"},
    {"exp": True},
    {"iat": NOW + 3600},
    {"iat": NOW - 3600},
    {"iat": None},
    {"nbf": NOW + 3600},
    {"nonce": "other"},
    {"nonce": None},
    {"sub": ""},
    {"sub": None},
    {"sub": 7},
    {"sub": "<script>"},
    {"sub": "a\nb"},
    {"groups": []},
    {"groups": None},
    {"groups": ["SRE"]},
    {"groups": {"sre": 1}},
    {"groups": [["sre"]]},
]


@pytest.mark.parametrize("claims", WRONG_CLAIMS, ids=map(str, range(len(WRONG_CLAIMS))))
async def test_claims_that_are_not_for_us_now_are_refused(claims: dict[str, Any], desk: Desk, issuer: Issuer) -> None:
    issuer.claims = claims
    refused(desk, await sign_in(desk, issuer))
    assert desk.sink.kinds() == ["operator_refused"]


def hs256(secret: bytes) -> Any:
    return lambda data: hmac.new(secret, data, hashlib.sha256).digest()


FORGERIES: dict[str, Any] = {
    "none": lambda issuer, claims: forge({"alg": "none"}, claims),
    "None": lambda issuer, claims: forge({"alg": "None", "kid": issuer.key.kid}, claims),
    "hs256-public-pem": lambda issuer, claims: forge(
        {"alg": "HS256", "kid": issuer.key.kid}, claims, hs256(issuer.key.as_pem(private=False))
    ),
    "hs256-client-secret": lambda issuer, claims: forge({"alg": "HS256"}, claims, hs256(SECRET.encode())),
    "hs256-empty": lambda issuer, claims: forge({"alg": "HS256"}, claims, hs256(b"")),
    "unsigned": lambda issuer, claims: forge({"alg": "RS256", "kid": issuer.key.kid}, claims),
    "another-key": lambda issuer, claims: jwt.encode({"alg": "RS256", "kid": issuer.key.kid}, claims, new_key()),
    "own-jwk": lambda issuer, claims: jwt.encode(
        {"alg": "RS256", "jwk": (key := new_key()).as_dict(private=False)}, claims, key
    ),
    "crit": lambda issuer, claims: forge({"alg": "RS256", "crit": ["x"], "x": 1}, claims),
    "es256-rsa-key": lambda issuer, claims: jwt.encode(
        {"alg": "ES256", "kid": issuer.key.kid}, claims, jwk.ECKey.generate_key("P-256")
    ),
    "kid-list": lambda issuer, claims: forge({"alg": "RS256", "kid": []}, claims),
    "empty": lambda issuer, claims: "",
    "no-text": lambda issuer, claims: 7,
    "dots": lambda issuer, claims: "..",
    "four": lambda issuer, claims: issuer.signed(claims) + ".x",
    "huge": lambda issuer, claims: "a" * 100_000,
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
async def test_a_token_that_the_issuer_did_not_sign_is_refused(forgery: Any, desk: Desk, issuer: Issuer) -> None:
    issuer.make_token = lambda claims: forgery(issuer, claims)
    refused(desk, await sign_in(desk, issuer))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("state=", "state=x"),
        ("code=", "code=x"),
        ("code=", "kode="),
        ("iss=", "iss=x"),
        ("?", "?state=x&"),
        ("?", "?error=x&"),
    ],
)
async def test_an_answer_that_was_changed_is_refused(old: str, new: str, desk: Desk, issuer: Issuer) -> None:
    back = await begin(desk, issuer)
    refused(desk, await desk.http.get(back.replace(old, new, 1)))
    # The login was used up by that.
    refused(desk, await desk.http.get(back))


async def test_an_answer_counts_once_and_only_in_the_browser_that_began(desk: Desk, issuer: Issuer) -> None:
    back = await begin(desk, issuer)
    ticket = desk.http.cookies[TICKET]
    desk.http.cookies.clear()
    refused(desk, await desk.http.get(back))
    await desk.http.get("/login/oidc")
    refused(desk, await desk.http.get(back))
    desk.http.cookies.clear()
    desk.http.cookies.set(TICKET, ticket)
    assert (await desk.http.get(back)).status_code == 200
    desk.http.cookies.clear()
    desk.http.cookies.set(TICKET, ticket)
    refused(desk, await desk.http.get(back))


async def test_a_code_that_was_used_is_worth_nothing(desk: Desk, issuer: Issuer) -> None:
    back = await begin(desk, issuer)
    issuer.codes.clear()
    refused(desk, await desk.http.get(back))


async def test_changed_keys_are_fetched_and_not_too_often(
    desk: Desk, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await sign_in(desk, issuer)).status_code == 200
    desk.http.cookies.clear()
    issuer.key = new_key()
    refused(desk, await sign_in(desk, issuer))
    assert issuer.asked.count("/keys") == 1
    monkeypatch.setattr(oidc, "REFRESH_SECONDS", 0.0)
    assert (await sign_in(desk, issuer)).status_code == 200
    assert issuer.asked.count("/keys") == 2


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys"])
async def test_without_the_issuer_the_page_says_so_and_other_ways_work(path: str, desk: Desk, issuer: Issuer) -> None:
    issuer.down = {path}
    there = await desk.http.get("/login/oidc")
    if there.status_code == 303:
        there = await desk.http.get(issuer.authorize(dict(parse_qsl(urlsplit(there.headers["location"]).query))))
    refused(desk, there, 503)
    await desk.log_in("bob")
    assert (await desk.http.get("/calls")).status_code == 200


async def test_keys_that_were_fetched_serve_while_the_issuer_is_down(desk: Desk, issuer: Issuer) -> None:
    assert (await sign_in(desk, issuer)).status_code == 200
    desk.http.cookies.clear()
    issuer.down = {"/keys", "/.well-known/openid-configuration"}
    assert (await sign_in(desk, issuer)).status_code == 200


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ],
    ids=str,
)
async def test_an_issuer_that_names_somebody_else_is_refused(
    document: dict[str, Any], desk: Desk, issuer: Issuer
) -> None:
    issuer.document = document
    refused(desk, await desk.http.get("/login/oidc"))


async def test_an_operator_of_the_file_has_the_lower_role_and_registers_no_passkey(desk: Desk, issuer: Issuer) -> None:
    desk.tokens.add("ann", Role.VIEWER, ["robot"])
    await sign_in(desk, issuer)
    assert "ann<small>viewer</small>" in (await desk.http.get("/calls")).text
    desk.tokens.change("ann", Role.ADMIN)
    assert "ann<small>approver</small>" in (await desk.http.get("/calls")).text
    # A passkey would log in with the file's role, whoever may choose a name at the issuer.
    for path in ("/sign-in/passkeys/options", "/sign-in/passkeys", "/sign-in/passkeys/remove"):
        assert (await desk.post(path)).status_code == 403
    desk.tokens.revoke("ann")
    assert (await desk.http.get("/calls")).status_code == 303


async def test_nobody_signs_in_without_a_record(desk: Desk, issuer: Issuer) -> None:
    desk.sink.fail = AuditUnavailableError("disk full")
    assert (await sign_in(desk, issuer)).status_code == 503
    assert "interlock-8090" not in desk.http.cookies


async def test_by_another_name_of_the_console_a_login_begins_at_its_url(desk: Desk) -> None:
    answer = await desk.http.get("http://localhost:8090/login/oidc")
    assert answer.headers["location"] == f"{URL}/login/oidc?next=/calls"


@pytest.mark.parametrize("verified", [None, False, "true"])
async def test_an_address_that_nobody_verified_names_no_operator(verified: Any, tmp_path: Path, issuer: Issuer) -> None:
    file = write_settings(tmp_path, issuer.url, operator="email")
    async with open_desk(tmp_path, console_url=URL, console_oidc=file) as desk:
        issuer.claims = {"email": "ann@example.com", "email_verified": verified}
        refused(desk, await sign_in(desk, issuer))
        issuer.claims |= {"email_verified": True}
        assert (await sign_in(desk, issuer)).status_code == 200
        assert "ann@example.com" in (await desk.http.get("/calls")).text


async def test_without_the_setting_there_is_no_such_way(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        assert "/login/oidc" not in (await desk.http.get("/login")).text
        assert (await desk.http.get("/login/oidc")).status_code == 404


async def test_a_secret_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    file = write_settings(tmp_path, "https://id.example.com")
    (tmp_path / "oidc.secret").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        async with open_desk(tmp_path, console_url=URL, console_oidc=file):
            pass


PROPOSAL = "01890000-0000-7000-8000-00000000000a"


async def lay_own(desk: Desk, agent: str) -> None:
    now = time.time()
    await desk.console.review._store.propose(
        new_proposal(
            PROPOSAL, principal=agent, own="refuse", created_at=now, expires_at=now + 600, arguments_hash=PROPOSAL
        ),
        now,
    )


async def test_who_signs_in_does_not_approve_what_an_agent_of_theirs_proposed(tmp_path: Path, issuer: Issuer) -> None:
    file = write_settings(tmp_path, issuer.url, agents=["okta:{sub}/*", "okta:{sub}"])
    async with open_desk(tmp_path, console_url=URL, console_oidc=file) as desk:
        await lay_own(desk, "okta:alice/bot")
        issuer.claims = {"sub": "alice"}
        assert (await sign_in(desk, issuer)).status_code == 200
        page = (await desk.http.get(f"/approvals/{PROPOSAL}")).text
        assert "You run the agent okta:alice/bot" in page
        assert 'id="approve"' not in page
        assert (await desk.post(f"/approvals/{PROPOSAL}/approve", shown="yes")).status_code == 403
        assert (await desk.console.review.show(PROPOSAL))["state"] == "pending"
        # By the admin API as well, with the issuer's own token.
        settings = load_oidc(file, URL)
        assert settings is not None
        guard = OperatorVerifier(settings)
        now = int(time.time())
        claims = {"iss": issuer.url, "aud": CLIENT, "iat": now, "exp": now + 60, "groups": ["sre"]}
        alice = await guard.operator(issuer.signed({**claims, "sub": "alice"}))
        with pytest.raises(ReviewError) as refusal:
            await desk.console.review.approve(PROPOSAL, alice)
        assert refusal.value.code == "own_proposal"
        # A name that is a pattern is no pattern, and a name that begins alike is somebody else.
        for name in ("a*", "alic", "alice/bo"):
            with contextlib.suppress(TokenError):
                assert not (await guard.operator(issuer.signed({**claims, "sub": name}))).runs("okta:alice/bot"), name
        bob = await guard.operator(issuer.signed({**claims, "sub": "bob"}))
        await desk.console.review.approve(PROPOSAL, bob)
        assert (await desk.console.review.show(PROPOSAL))["state"] == "approved"
