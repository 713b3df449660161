"""Who vouches for agents in tests: an OIDC issuer over TLS, and a certificate authority of SPIFFE's kind."""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from joserfc import jwt

from tests.support.oidc_issuer import Issuer, start_issuer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AUDIENCE = "interlock"


def agent_claims(issuer: Issuer, **changes: Any) -> dict[str, Any]:
    """Return the claims of a right token; a change to None leaves the claim out."""
    now = int(time.time())
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "billing-bot", "exp": now + 300, "iat": now, "groups": ["sre"]}
    return {name: value for name, value in (claims | changes).items() if value is not None}


def agent_token(issuer: Issuer, header: dict[str, Any] | None = None, **changes: Any) -> str:
    """Return a token that the issuer signed."""
    return jwt.encode(
        {"alg": "RS256", "kid": issuer.key.kid, **(header or {})}, agent_claims(issuer, **changes), issuer.key
    )


@contextlib.contextmanager
def start_tls_issuer(folder: Path) -> Iterator[tuple[Issuer, Path]]:
    """Serve an issuer over TLS; yield it and the file of its CA."""
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(tls)
    ca_file = folder / "issuer-ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    with start_issuer(tls) as issuer:
        yield issuer, ca_file


@dataclass
class Mesh:
    """A trust domain: its root, and workloads' certificates."""

    domain: str = "example.org"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    root: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        self.root = _certificate(self.key, None, self.key, "root", authority=True)

    def pem(self) -> bytes:
        return self.root.public_bytes(serialization.Encoding.PEM)

    def between(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """Return an authority between the root and workloads."""
        key = ec.generate_private_key(ec.SECP256R1())
        return key, _certificate(key, self.root, self.key, "between", authority=True)

    def workload(
        self,
        *uris: str,
        days: tuple[float, float] = (-1, 1),
        authority: bool = False,
        signer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None = None,
    ) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """Return a key and its certificate, for as many names as are given."""
        key = ec.generate_private_key(ec.SECP256R1())
        by, issuer = signer or (self.key, self.root)
        return key, _certificate(key, issuer, by, "workload", uris, days, authority=authority)


def _certificate(
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    name: str,
    uris: tuple[str, ...] = (),
    days: tuple[float, float] = (-1, 1),
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    usage |= dict.fromkeys(("encipher_only", "decipher_only"), False)
    usage |= {"digital_signature": not authority, "key_cert_sign": authority, "crl_sign": authority}
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not authority:
        made = made.add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    if uris:
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])
        made = made.add_extension(names, critical=False)
    return made.sign(signer, hashes.SHA256())


def write_pem(path: Path, key: ec.EllipticCurvePrivateKey, *chain: x509.Certificate) -> Path:
    """Write a key and certificates into a file, as clients read them."""
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*form) + b"".join(one.public_bytes(form[0]) for one in chain))
    return path
