"""Issues certificates for the names that clients in a sinkhole connect to, from a CA that lives for one probe."""

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
_UNUSED = (
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)
# Python 3.13 verifies strictly by default: a CA must say that it signs certificates, and have key identifiers.
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True, key_cert_sign=True, crl_sign=True, **dict.fromkeys(_UNUSED, False)
)


class ProbeAuthority:
    """Signs a certificate for any name. Its keys never leave the process."""

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
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, name: str) -> ssl.SSLContext:
        """Return a server's TLS context for a host name or address."""
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
        # The ssl module reads keys from files only; a memfd is on no disk.
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
