"""Agents by other issuers' tokens and by certificates, through the real proxy, with the lane and without it."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from joserfc import jwt
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.daemon.waiting import next_refusal, refusals
from tests.support.agent_issuer import Mesh, agent_claims, agent_token, start_tls_issuer, write_pem
from tests.support.harness import Interlock, ServerHandle, start_interlock
from tests.support.oidc_issuer import Issuer, encode, forge, new_key
from tests.support.timeouts import PATIENCE

POLICY = """
version: 1
default: allow
rules:
  - {id: no-contractors, action: deny, tools: [danger], agents: {claim: groups, in: [contractors]}}
  - {id: not-for-alice, action: deny, tools: [danger], agents: {claim: sub, in: [alice], provider: okta}}
  - {id: no-web-frontend, action: deny, tools: [danger], agents: ["spiffe://example.org/web/*"]}
egress:
  default: allow
  rules:
    - {id: interns, action: deny, methods: [DELETE], agents: {claim: groups, in: [interns]}}
"""
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}


class World(NamedTuple):
    interlock: Interlock
    server: ServerHandle
    issuer: Issuer
    mesh: Mesh
    folder: Path

    def client(self, token: str | None = None, cert: Path | None = None, **more: Any) -> httpx2.Client:
        headers = {"Proxy-Authorization": f"Bearer {token}"} if token is not None else {}
        scheme, tls = "http", None
        if cert is not None:
            scheme, tls = "https", ssl.create_default_context(cafile=self.interlock.state_dir / "ca" / "ca.pem")
            tls.load_cert_chain(cert)
        url = f"{scheme}://127.0.0.1:{self.interlock.port}"
        proxy = httpx2.Proxy(url, headers=headers, ssl_context=tls)
        return httpx2.Client(proxy=proxy, timeout=PATIENCE, trust_env=False, **more)

    def decided(self) -> dict[str, Any]:
        return [event for event in self.interlock.events() if event["kind"] == "decided"][-1]

    def call(self, token: str | None = None, cert: Path | None = None) -> httpx2.Response:
        with self.client(token, cert) as http:
            return http.post(f"{self.server.url}/echo", json=CALL)


@pytest.fixture(scope="module", params=[True, False], ids=["lane", "layers"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, web: ServerHandle
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("identity")
    mesh = Mesh()
    (folder / "bundle.pem").write_bytes(mesh.pem())
    with start_tls_issuer(folder) as (issuer, ca_file):
        okta = {"name": "okta", "type": "oidc", "issuer": issuer.url, "audience": "interlock", "claims": ["groups"]}
        okta |= {"ca_file": str(ca_file), "skew_seconds": 0}
        spiffe = {"name": "mesh", "type": "spiffe", "trust_domain": "example.org"}
        spiffe |= {"bundle": str(folder / "bundle.pem")}
        (folder / "identity.yaml").write_text(json.dumps({"providers": [okta, spiffe], "wait_seconds": 5}))
        settings = {"identity": str(folder / "identity.yaml"), "fast_lane": request.param}
        with start_interlock(folder / "proxy", policy=POLICY, settings=settings) as interlock:
            yield World(interlock, web, issuer, mesh, folder)


def reason_of(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["data"]["reason"]


def test_a_token_names_the_agent_with_its_claims_and_never_reaches_the_server(world: World) -> None:
    token = agent_token(world.issuer)
    with world.client(token) as http:
        seen = http.get(f"{world.server.url}/echo").json()
        assert http.post(f"{world.server.url}/echo", json=CALL).status_code == 200
    assert "proxy-authorization" not in dict(seen["headers"])
    event = world.decided()
    assert (event["agent"], event["authenticated"]) == ("okta:billing-bot", True)
    told = {"provider": "okta", "issuer": world.issuer.url, "subject": "billing-bot", "claims": {"groups": ["sre"]}}
    assert event["detail"]["identity"] == told
    assert token not in world.interlock.errors()


def test_a_token_may_be_the_password_of_the_proxys_url(world: World) -> None:
    url = f"http://jwt:{agent_token(world.issuer)}@127.0.0.1:{world.interlock.port}"
    with httpx2.Client(proxy=url, timeout=PATIENCE, trust_env=False) as http:
        assert http.post(f"{world.server.url}/echo", json=CALL).status_code == 200
    assert world.decided()["agent"] == "okta:billing-bot"


def test_rules_name_a_claim(world: World) -> None:
    assert world.call(agent_token(world.issuer, groups=["staff", "contractors"])).json()["result"]["isError"]
    assert world.decided()["rule"] == "no-contractors"


def test_who_acts_and_for_whom_are_both_recorded_and_rules_name_either(world: World) -> None:
    token = agent_token(world.issuer, sub="alice", act={"sub": "billing-bot", "act": {"sub": "gateway"}})
    assert world.call(token).json()["result"]["isError"]
    assert world.decided()["rule"] == "not-for-alice"
    event = world.decided()
    assert (event["agent"], event["detail"]["identity"]["subject"]) == ("okta:billing-bot", "alice")
    assert event["detail"]["identity"]["act"] == ["billing-bot", "gateway"]


def test_the_trail_is_asked_by_claims(world: World) -> None:
    world.call(agent_token(world.issuer, sub="carol", act={"sub": "reporter"}, groups=["finance", "eu"]))
    world.interlock.events()
    for claim, found in (("groups=eu", 1), ("sub=carol", 1), ("act.sub=reporter", 1), ("groups=e", 0), ("sub=eu", 0)):
        done = world.interlock.cli("audit", "query", "--agent", "okta:reporter", "--claim", claim, "--json")
        assert (done.returncode, len(done.stdout.splitlines())) == (0, found), (claim, done.stderr)
    assert "write groups=sre" in world.interlock.cli("audit", "query", "--claim", "groups").stderr


def test_egress_rules_name_a_claim(world: World) -> None:
    with world.client(agent_token(world.issuer, groups=["interns"])) as http:
        assert http.request("DELETE", f"{world.server.url}/echo").status_code == 403
        assert http.get(f"{world.server.url}/echo").status_code == 200


def now() -> int:
    return int(time.time())


def confused(issuer: Issuer) -> str:
    import hmac

    public = issuer.key.as_pem(private=False)
    header = {"alg": "HS256", "kid": issuer.key.kid}
    return forge(header, agent_claims(issuer), lambda data: hmac.digest(public, data, "sha256"))


def bringing_a_key(issuer: Issuer) -> str:
    own = new_key()
    header = {"alg": "RS256", "kid": own.kid, "jwk": own.as_dict(private=False), "jku": f"{issuer.url}/evil"}
    signed = f"{encode(json.dumps(header).encode())}.{encode(json.dumps(agent_claims(issuer)).encode())}"
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    made = own.private_key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{encode(made)}"


def twice(issuer: Issuer) -> str:
    head = encode(json.dumps({"alg": "RS256", "kid": issuer.key.kid}).encode())
    claims = json.dumps(agent_claims(issuer))[:-1] + ',"sub":"admin"}'
    return f"{head}.{encode(claims.encode())}.{encode(b'x')}"


REFUSED: dict[str, tuple[str, Any]] = {
    "expired": ("token_expired", lambda issuer: agent_token(issuer, exp=now() - 1)),
    "not yet valid": ("token_early", lambda issuer: agent_token(issuer, nbf=now() + 600)),
    "of the future": ("token_early", lambda issuer: agent_token(issuer, iat=now() + 600)),
    "without an end": ("token_claims", lambda issuer: agent_token(issuer, exp=None)),
    "for somebody else": ("token_audience", lambda issuer: agent_token(issuer, aud="grafana")),
    "for nobody": ("token_audience", lambda issuer: agent_token(issuer, aud=None)),
    "of another issuer": ("token_issuer", lambda issuer: agent_token(issuer, iss="https://evil.example.com")),
    "by no key": ("token_malformed", lambda issuer: forge({"alg": "none"}, agent_claims(issuer))),
    "by no key, with a signature": (
        "token_algorithm",
        lambda issuer: forge({"alg": "none"}, agent_claims(issuer), lambda _: b"x"),
    ),
    "by the public key as a secret": ("token_algorithm", confused),
    "by a key of its own": (
        "token_signature",
        lambda issuer: jwt.encode({"alg": "RS256", "kid": issuer.key.kid}, agent_claims(issuer), new_key()),
    ),
    "by a key that it brings along": ("token_key", bringing_a_key),
    "by a key in a file": ("token_key", lambda issuer: agent_token(issuer, {"kid": "../../../dev/null"})),
    "by a key in a query": ("token_key", lambda issuer: agent_token(issuer, {"kid": "x' UNION SELECT 'k"})),
    "with a header that must be known": (
        "token_malformed",
        lambda issuer: forge({"alg": "RS256", "crit": ["x"], "x": 1}, agent_claims(issuer), lambda _: b"x"),
    ),
    "a claim twice": ("token_malformed", twice),
    "huge": ("token_too_large", lambda issuer: agent_token(issuer, padding="x" * 20_000)),
    "a name with a line break": ("token_claims", lambda issuer: agent_token(issuer, sub="a\nb")),
    "no token": ("token_malformed", lambda _: "abc"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_token_is_refused_with_its_own_reason(world: World, case: str) -> None:
    reason, make = REFUSED[case]
    seen = len([event for event in world.interlock.events() if event["kind"].endswith("_refused")])
    answer = world.call(make(world.issuer))
    assert reason_of(answer) == (407, reason)
    assert "Bearer" in str(answer.headers.get_list("proxy-authenticate"))
    event = next_refusal(world.interlock, seen)
    assert (event["reason"], event["agent"], event["authenticated"]) == (reason, "agent", False)


def test_a_token_that_expires_is_refused_on_a_connection_that_stays_open(world: World) -> None:
    token = agent_token(world.issuer, exp=now() + 5, sub="short")
    with world.client(token) as http:
        # The first teaches the lane, the others take it, until the token's time is up.
        answers = [http.post(f"{world.server.url}/echo", json=CALL)]
        deadline = time.monotonic() + PATIENCE
        while answers[-1].status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.05)
            answers.append(http.post(f"{world.server.url}/echo", json=CALL))
    assert len(answers) > 2
    assert reason_of(answers[-1]) == (407, "token_expired")


def test_event_streams_and_websockets_end_with_the_token_that_opened_them(world: World) -> None:
    began, seen = time.monotonic(), len(refusals(world.interlock))
    token = agent_token(world.issuer, exp=now() + 2, sub="short")
    proxy = f"http://jwt:{token}@127.0.0.1:{world.interlock.port}"
    target = world.server.url.replace("http://", "ws://")
    with world.client(token) as http, http.stream("GET", f"{world.server.url}/events?pause=60") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "data: begin"
        with connect(f"{target}/ws", proxy=proxy, open_timeout=PATIENCE) as socket:
            socket.send("no MCP")
            assert socket.recv(PATIENCE) == "no MCP"
            with pytest.raises(ConnectionClosed):
                socket.recv(PATIENCE)
        with contextlib.suppress(httpx2.RemoteProtocolError):
            assert "data: end" not in list(lines)
    assert time.monotonic() - began < 30
    for number in range(2):
        event = next_refusal(world.interlock, seen + number)
        assert (event["kind"], event["reason"], event["agent"]) == ("request_refused", "token_expired", "okta:short")


def test_keys_that_the_issuer_changes_are_fetched_and_old_tokens_end(world: World) -> None:
    with world.client(agent_token(world.issuer)) as http:
        assert http.post(f"{world.server.url}/echo", json=CALL).status_code == 200
        world.issuer.key = new_key()
        # Fetched again at most every 10 s: anybody can name a key that does not exist.
        deadline = time.monotonic() + PATIENCE
        while (answer := world.call(agent_token(world.issuer))).status_code != 200:
            assert reason_of(answer) == (407, "token_key")
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert reason_of(http.post(f"{world.server.url}/echo", json=CALL)) == (407, "token_key")


def workload(world: World, name: str, *uris: str, **how: Any) -> Path:
    return write_pem(world.folder / f"{name}.pem", *world.mesh.workload(*uris, **how))


def test_a_certificate_names_the_workload(world: World) -> None:
    cert = workload(world, "billing", "spiffe://example.org/billing")
    with world.client(cert=cert) as http:
        assert [http.post(f"{world.server.url}/echo", json=CALL).status_code for _ in range(3)] == [200] * 3
    event = world.decided()
    assert (event["agent"], event["authenticated"]) == ("spiffe://example.org/billing", True)
    assert event["detail"]["identity"]["issuer"] == "spiffe://example.org"


def test_a_rule_names_workloads_by_their_path(world: World) -> None:
    assert world.call(cert=workload(world, "web", "spiffe://example.org/web/1")).json()["result"]["isError"]
    assert world.decided()["rule"] == "no-web-frontend"


@pytest.mark.parametrize(
    ("name", "uris", "how"),
    [
        ("other-domain", ["spiffe://evil.org/billing"], {}),
        ("two-names", ["spiffe://example.org/a", "spiffe://example.org/b"], {}),
        ("no-name", [], {}),
        ("expired", ["spiffe://example.org/billing"], {"days": (-2, -1)}),
        ("authority", ["spiffe://example.org/billing"], {"authority": True}),
    ],
)
def test_a_certificate_of_no_workload_is_refused(world: World, name: str, uris: list[str], how: dict[str, Any]) -> None:
    assert reason_of(world.call(cert=workload(world, name, *uris, **how))) == (407, "client_certificate")


def test_a_certificate_of_another_root_is_refused(world: World) -> None:
    cert = write_pem(world.folder / "foreign.pem", *Mesh().workload("spiffe://example.org/billing"))
    assert reason_of(world.call(cert=cert)) == (407, "client_certificate")


def test_an_authority_between_workload_and_root_is_followed(world: World) -> None:
    signer = world.mesh.between()
    key, leaf = world.mesh.workload("spiffe://example.org/deep", signer=signer)
    assert world.call(cert=write_pem(world.folder / "deep.pem", key, leaf, signer[1])).status_code == 200
    assert reason_of(world.call(cert=write_pem(world.folder / "short.pem", key, leaf))) == (407, "client_certificate")


def test_inside_a_tunnel_nobody_is_asked_for_a_certificate(world: World) -> None:
    cert = workload(world, "tunnel", "spiffe://example.org/tunnel")
    trust = ssl.create_default_context(cafile=world.interlock.state_dir / "ca" / "ca.pem")
    trust.load_cert_chain(cert)
    # Only the inner TLS has a certificate: it would be the server's to ask for, and names nobody here.
    proxy = f"http://127.0.0.1:{world.interlock.port}"
    with httpx2.Client(proxy=proxy, verify=trust, timeout=PATIENCE, trust_env=False) as http:
        http.post(f"https://127.0.0.1:{world.server.port}/tunnelled", json=CALL)
    assert (world.decided()["agent"], world.decided()["authenticated"]) == ("agent", False)


def test_a_new_bundle_ends_certificates_of_the_old_root(world: World) -> None:
    cert = workload(world, "late", "spiffe://example.org/late")
    with world.client(cert=cert) as http:
        assert http.post(f"{world.server.url}/echo", json=CALL).status_code == 200
        (world.folder / "new.pem").write_bytes(Mesh().pem())
        (world.folder / "new.pem").replace(world.folder / "bundle.pem")
        assert reason_of(http.post(f"{world.server.url}/echo", json=CALL)) == (407, "client_certificate")
    (world.folder / "new.pem").write_bytes(world.mesh.pem())
    (world.folder / "new.pem").replace(world.folder / "bundle.pem")
    assert world.call(cert=cert).status_code == 200
