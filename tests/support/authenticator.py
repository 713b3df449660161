"""A passkey in software, which signs whatever it is told to, right or wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40


def encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


@dataclass
class Authenticator:
    """One credential. Keyword arguments of its methods change what a right one would say."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    user_handle: str = ""
    count: int = 0

    def create(self, options: Any, origin: str, **changes: Any) -> str:
        """Answer `navigator.credentials.create`."""
        self.user_handle = options["user"]["id"]
        numbers = self.key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}
        attested = bytes(16) + len(self.credential_id).to_bytes(2) + self.credential_id + cbor2.dumps(cose)
        flags = changes.pop("flags", PRESENT | VERIFIED) | ATTESTED
        data = self._data(changes.pop("rp_id", options["rp"]["id"]), flags) + attested
        client = self._client("webauthn.create", options, origin, changes)
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer({"clientDataJSON": encode(client), "attestationObject": encode(attestation)})

    def get(self, options: Any, origin: str, **changes: Any) -> str:
        """Answer `navigator.credentials.get`."""
        self.count = changes.pop("count", self.count + 1)
        data = self._data(changes.pop("rp_id", options["rpId"]), changes.pop("flags", PRESENT | VERIFIED))
        key, handle = changes.pop("key", self.key), changes.pop("user_handle", self.user_handle)
        client = self._client("webauthn.get", options, origin, changes)
        signature = key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256()))
        parts = {"clientDataJSON": client, "authenticatorData": data, "signature": signature}
        return self._answer({name: encode(part) for name, part in parts.items()} | {"userHandle": handle})

    def _data(self, rp_id: str, flags: int) -> bytes:
        return hashlib.sha256(rp_id.encode()).digest() + bytes([flags]) + self.count.to_bytes(4)

    def _client(self, kind: str, options: Any, origin: str, changes: dict[str, Any]) -> bytes:
        said = {"type": kind, "challenge": options["challenge"], "origin": origin, "crossOrigin": False} | changes
        return json.dumps(said).encode()

    def _answer(self, response: dict[str, str]) -> str:
        key = encode(self.credential_id)
        return json.dumps({"id": key, "rawId": key, "type": "public-key", "response": response})
