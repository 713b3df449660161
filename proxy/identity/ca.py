"""The proxy's certificate authority: an EC P-256 key, made at the first start, that stays in the state folder."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proxy.errors import ConfigError
from proxy.system.package_data import node_proxy_file
from proxy.system.secret_files import make_private, write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

VALID_DAYS = 5 * 365
BACKDATED = dt.timedelta(days=1)  # agents' clocks may be slow


class Authority:
    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "ca"
        self.key_file = self.folder / "mitmproxy-ca.pem"  # the name mitmproxy looks for: key and certificate
        self.certificate_file = self.folder / "ca.pem"
        self.bundle_file = self.folder / "bundle.pem"
        self.node_file = self.folder / "node-proxy.cjs"
        self.upstream_file = self.folder / "upstream.pem"

    def ensure(self) -> x509.Certificate:
        """Return the CA's certificate, and create the CA on first use. Raises ConfigError if it cannot be used."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o755)  # agents read the certificate; the key is 0600
        if not self.key_file.exists():
            # make_private keeps the first of several: two processes that start together must agree on one CA.
            key, made = _make()
            pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            make_private(self.key_file, key.private_bytes(*pem) + _pem(made))
        certificate = self.look()
        _refresh(self.certificate_file, _pem(certificate))
        _refresh(self.bundle_file, system_roots() + b"\n" + _pem(certificate))
        # Beside the certificates, since agents get this folder, also in containers.
        _refresh(self.node_file, node_proxy_file().read_bytes())
        return certificate

    def look(self) -> x509.Certificate:
        """Return the CA's certificate and create nothing. Raises ConfigError if it cannot be used."""
        try:
            return _read(self.key_file.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the CA at {self.key_file} cannot be read ({error}); restore it, or delete it to create a new one"
            ) from error

    def upstream_roots(self, extra: Path | None) -> Path:
        """Return the file of roots that upstream servers are verified against: the system's and `extra`."""
        roots = system_roots()
        if extra is not None:
            try:
                added = extra.read_bytes()
                x509.load_pem_x509_certificates(added)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"upstream_ca: {str(extra)!r} is not a readable file of PEM certificates ({error})"
                ) from error
            roots += b"\n" + added
        _refresh(self.upstream_file, roots)
        return self.upstream_file


def system_roots() -> bytes:
    """Return the machine's trusted roots as PEM; certifi's if it has none."""
    for path in (ssl.get_default_verify_paths().cafile, "/etc/ssl/certs/ca-certificates.crt", certifi.where()):
        if path and Path(path).is_file():
            return Path(path).read_bytes()
    return b""


def holds(file: Path, certificate: x509.Certificate) -> bool:
    """Return whether a PEM file contains `certificate`. Raises OSError."""
    return _pem(certificate).strip() in file.read_bytes().replace(b"\r\n", b"\n")


def fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _read(pem: bytes) -> x509.Certificate:
    certificate = x509.load_pem_x509_certificate(pem)
    key = serialization.load_pem_private_key(pem, password=None)
    # A key restored from another backup would sign leaves that no agent trusts: better no start than broken TLS.
    if key.public_key() != certificate.public_key():
        raise ValueError("the private key does not fit the certificate")
    return certificate


def _make() -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    # P-256 instead of mitmproxy's RSA-2048: a new TLS connection costs 7.6 ms of CPU instead of 12.4.
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "Interlock local CA"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Interlock"),
        ]
    )
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        # path_length=0: it signs leaves only, never another CA.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, builder.sign(key, hashes.SHA256())


def _usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _refresh(path: Path, data: bytes) -> None:
    # Readable by all: agents' containers mount it. Written only on change, so that watchers of the file stay quiet.
    if not path.exists() or path.read_bytes() != data:
        write_private(path, data)
        path.chmod(0o644)
