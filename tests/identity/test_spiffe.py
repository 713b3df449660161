"""SPIFFE's names, bundles and certificates, by the rules and examples of its specifications."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.x509.verification import Store

from proxy.identity.jwt import TokenError
from proxy.identity.spiffe import MAX_CHAIN, Bundle, read_jwt_keys, read_roots, trust_domain, verify_svid
from tests.support.agent_issuer import Mesh
from tests.support.oidc_issuer import usual_key

MESH = Mesh()
NAME = "spiffe://example.org/billing/api"


@pytest.mark.parametrize(
    "name",
    [
        "spiffe://example.org/path",
        "spiffe://trustdomain/path/element",
        "spiffe://1.2.3.4/service",
        "spiffe://staging.example.com/payments/mysql",
        "spiffe://k8s-west.example.com/ns/staging/sa/default",
        "spiffe://example.com/9eebccd2-12bf-40a6-b262-65fe0487d453",
        "spiffe://a_b-c.d/A.b_c-D",
        "spiffe://example.org/...",
    ],
)
def test_these_are_names_of_workloads(name: str) -> None:
    assert trust_domain(name) == name.split("/")[2]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "spiffe://",
            "spiffe://example.org",
            "spiffe://example.org/",
            "spiffe:///path",
            "http://example.org/path",
        ),
        *("SPIFFE://example.org/path", "spiffe://Example.org/path", "spiffe://example.org//path"),
        *("spiffe://example.org/path/", "spiffe://example.org/./path", "spiffe://example.org/../path"),
        *("spiffe://example.org/path/..", "spiffe://example.org/%2e%2e/path", "spiffe://example.org/p%61th"),
        *("spiffe://user@example.org/path", "spiffe://example.org:80/path", "spiffe://example.org/path?q=1"),
        *(
            "spiffe://example.org/path#x",
            "spiffe://example.org/pa th",
            "spiffe://example.org/pâth",
            "spiffe://exämple/p",
        ),
        *("spiffe://example.org/path\n", f"spiffe://example.org/{'x' * 2048}", f"spiffe://{'d' * 256}/path"),
    ],
)
def test_these_are_not(name: str) -> None:
    assert trust_domain(name) is None


def refused(*uris: str, mesh: Mesh = MESH, domain: str = "example.org", at: float | None = None, **how: Any) -> str:
    _, leaf = mesh.workload(*uris, **how)
    with pytest.raises(TokenError) as caught:
        verify_svid([leaf], Store([MESH.root]), domain, at or time.time())
    assert caught.value.reason == "client_certificate"
    return caught.value.detail


def test_a_certificate_of_the_trust_domain_is_taken_also_by_an_authority_between() -> None:
    signer = MESH.between()
    for chain in ([MESH.workload(NAME)[1]], [MESH.workload(NAME, signer=signer)[1], signer[1]]):
        assert verify_svid(chain, Store([MESH.root]), "example.org", time.time()) == NAME


def test_other_certificates_are_refused_each_with_its_reason() -> None:
    assert "no SPIFFE ID" in refused()
    assert "2 URIs" in refused(NAME, "https://example.org/x")
    assert "not the SPIFFE ID of a workload" in refused("spiffe://example.org")
    assert "not the SPIFFE ID of a workload" in refused("https://example.org/x")
    assert "another trust domain" in refused("spiffe://evil.org/billing")
    assert "expired" in refused(NAME, days=(-2, -1))
    assert "expired" in refused(NAME, days=(1, 2))
    assert "signs others" in refused(NAME, authority=True)
    assert "roots" in refused(NAME, mesh=Mesh())
    assert "roots" in refused(NAME, signer=MESH.between())


def test_a_workload_signs_for_nobody() -> None:
    key, leaf = MESH.workload(NAME)
    _, forged = MESH.workload("spiffe://example.org/admin", signer=(key, leaf))
    with pytest.raises(TokenError, match="roots"):
        verify_svid([forged, leaf], Store([MESH.root]), "example.org", time.time())


def test_a_chain_has_an_end() -> None:
    for chain in ([], [MESH.workload(NAME)[1]] * (MAX_CHAIN + 1)):
        with pytest.raises(TokenError, match="chain"):
            verify_svid(chain, Store([MESH.root]), "example.org", time.time())


def bundle_json() -> bytes:
    der = MESH.root.public_bytes(serialization.Encoding.DER)
    numbers = MESH.key.public_key().public_numbers()
    point = {
        name: base64.urlsafe_b64encode(value.to_bytes(32)).rstrip(b"=").decode()
        for name, value in (("x", numbers.x), ("y", numbers.y))
    }
    root = {"use": "x509-svid", "kty": "EC", "crv": "P-256", **point, "x5c": [base64.b64encode(der).decode()]}
    signing = usual_key().as_dict(private=False) | {"use": "jwt-svid"}
    nameless = {name: value for name, value in signing.items() if name != "kid"}
    return json.dumps({"spiffe_sequence": 1, "keys": [root, signing, nameless]}).encode()


def test_a_bundle_of_spiffes_own_form_has_roots_and_keys() -> None:
    assert read_roots(bundle_json()) == [MESH.root]
    assert len(read_jwt_keys(bundle_json())) == 1


@pytest.mark.parametrize("data", [b"", b"{}", b'{"keys":[7]}', b"no PEM", b'{"keys":[{"use":"x509-svid"}]}'])
def test_what_is_no_bundle_leaves_no_roots(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(data)
    with pytest.raises(TokenError) as caught:
        Bundle(path).store()
    assert caught.value.reason == "issuer_unavailable"


def test_a_bundle_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "bundle.pem"
    path.write_bytes(MESH.pem())
    bundle = Bundle(path)
    first, version = bundle.store(), bundle.version
    assert bundle.store() is first
    path.write_bytes(Mesh().pem() + b"\n")
    assert bundle.store() is not first
    assert bundle.version > version
    path.unlink()
    with pytest.raises(TokenError):
        bundle.store()
