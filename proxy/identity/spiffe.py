"""SPIFFE: names of workloads, the trust bundle in a file, and X.509-SVIDs. Pure but for reading that file."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any, Final

import structlog
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from proxy.identity.jwt import KeySet, TokenError
from proxy.identity.key_source import file_stamp, read_bounded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = structlog.get_logger("interlock.identity")

REASON: Final = "client_certificate"
SCHEME: Final = "spiffe://"
MAX_ID: Final = 2048
MAX_CHAIN: Final = 8
# In one form only: no escapes, no empty or dotted segments, no port, no query (SPIFFE-ID, 2).
_ID: Final = re.compile(r"spiffe://([a-z0-9._-]{1,255})((?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+)+)")


def trust_domain(spiffe_id: str) -> str | None:
    """Return the trust domain of a workload's name; None for what is not the name of a workload."""
    match = _ID.fullmatch(spiffe_id) if len(spiffe_id) <= MAX_ID else None
    return match[1] if match else None


class Bundle:
    """The roots of one trust domain, in a file of PEM certificates or of SPIFFE's own JSON; read again on change."""

    def __init__(self, path: Path) -> None:
        self.version = 0
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._store: Store | None = None

    def store(self) -> Store:
        """Return the roots. Raises TokenError where there are none."""
        stamp = file_stamp(self._path)
        if stamp != self._stamp or stamp is None:
            self._stamp, self._store, self.version = stamp, None, self.version + 1
            self._store = self._load()
        if self._store is None:
            raise TokenError("issuer_unavailable", "the roots of its trust domain cannot be read")
        return self._store

    def _load(self) -> Store | None:
        try:
            return Store(read_roots(read_bounded(self._path)))
        except (OSError, ValueError, RecursionError) as error:
            log.warning("a trust bundle cannot be read", path=str(self._path), error=str(error))
            return None


def read_roots(data: bytes) -> list[x509.Certificate]:
    """Return the roots in a bundle. Raises ValueError."""
    if data.lstrip()[:1] != b"{":
        return x509.load_pem_x509_certificates(data)
    try:
        first = [base64.b64decode(key["x5c"][0], validate=True) for key in _listed(data, "x509-svid")]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError("a root of the bundle has no certificate") from error
    return [x509.load_der_x509_certificate(der) for der in first]


def read_jwt_keys(data: bytes) -> KeySet:
    """Return the keys that sign JWT-SVIDs, in a bundle of SPIFFE's JSON. Raises ValueError."""
    # A key of this set must say that it is for JWT-SVIDs, and must have a name (SPIFFE bundle, 4.2.2).
    return KeySet({"keys": [key for key in _listed(data, "jwt-svid") if key.get("kid")]}, uses=("jwt-svid",))


def _listed(data: bytes, use: str) -> list[dict[str, Any]]:
    try:
        return [key for key in json.loads(data)["keys"] if key["use"] == use]
    except (KeyError, TypeError) as error:
        raise ValueError("it is no bundle of SPIFFE") from error


def verify_svid(chain: Sequence[x509.Certificate], store: Store, domain: str, now: float) -> str:
    """Return the name in an X.509-SVID. Raises TokenError for a certificate that is none of the trust domain's."""
    if not 0 < len(chain) <= MAX_CHAIN:
        raise TokenError(REASON, f"its chain does not have 1 to {MAX_CHAIN} certificates")
    name = svid_name(chain[0])
    if trust_domain(name) != domain:
        raise TokenError(REASON, "it is of another trust domain")
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    verifier = PolicyBuilder().store(store).time(moment).max_chain_depth(MAX_CHAIN).build_client_verifier()
    try:
        verifier.verify(chain[0], list(chain[1:]))
    except VerificationError as error:
        if not chain[0].not_valid_before_utc <= moment <= chain[0].not_valid_after_utc:
            raise TokenError(REASON, "it has expired, or is not valid yet") from error
        raise TokenError(REASON, "it does not lead to the roots of its trust domain") from error
    return name


def svid_name(leaf: x509.Certificate) -> str:
    """Return the one SPIFFE ID of a certificate. Raises TokenError for a certificate that is no workload's."""
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        usage = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
        signs = usage.key_cert_sign or usage.crl_sign or not usage.digital_signature or _is_ca(leaf)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError) as error:
        raise TokenError(REASON, "it has no SPIFFE ID, or does not say what its key is for") from error
    if len(uris) != 1:
        raise TokenError(REASON, f"it has {len(uris)} URIs where a workload has one")
    if signs:
        raise TokenError(REASON, "it is a certificate that signs others, and no workload's")
    if trust_domain(uris[0]) is None:
        raise TokenError(REASON, "its URI is not the SPIFFE ID of a workload")
    return uris[0]


def _is_ca(leaf: x509.Certificate) -> bool:
    try:
        return leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
