"""Certificates for the names that a sinkhole is asked for, from an authority that lives as long as one probe."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import threading

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = dt.timedelta(days=2)
MAX_COMMON_NAME = 64
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class ProbeAuthority:
    """Signs a certificate for any name. No key of it leaves the process."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("Interlock probe")
        self._lock = threading.Lock()
        self._contexts: dict[str, ssl.SSLContext] = {}
        signed = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(True, 0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
        )
        self._certificate = signed.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, name: str) -> ssl.SSLContext:
        """Return a server's TLS context for a host's name or address."""
        with self._lock:
            if name not in self._contexts:
                self._contexts[name] = self._make(name)
            return self._contexts[name]

    def _make(self, name: str) -> ssl.SSLContext:
        alternative = x509.SubjectAlternativeName([_general(name)])
        builder = self._builder(_named(name[:MAX_COMMON_NAME]), self._leaf_key)
        leaf = builder.add_extension(alternative, critical=False).sign(self._key, hashes.SHA256())
        private = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The library reads files alone; this one is on no disk.
        with os.fdopen(os.memfd_create("leaf", os.MFD_CLOEXEC), "wb") as file:
            file.write(private + leaf.public_bytes(serialization.Encoding.PEM))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFETIME)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
