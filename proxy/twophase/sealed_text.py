"""Texts that clients keep for us: encrypted and authenticated, so that they can neither read nor change them. Pure.

    <prefix>.<key id>.<base64url of nonce and AES-GCM>

The key is derived from the commit keys, which all replicas share: whichever of them gets the text back can open it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from proxy.twophase.tokens import KeyRing, SigningKey

_NONCE_BYTES: Final = 12
_FORM: Final = re.compile(r"\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]+)")


class NotSealedError(Exception):
    """A text that was not sealed here for this purpose, or was changed on its way."""


@dataclass(frozen=True, slots=True)
class Seal:
    """One kind of sealed text. What is sealed for one purpose opens for no other."""

    prefix: str
    purpose: bytes
    longest: int

    def is_ours(self, text: object) -> bool:
        return isinstance(text, str) and text.startswith(f"{self.prefix}.")

    def seal(self, plain: bytes, ring: KeyRing) -> str:
        key, nonce = ring.current, secrets.token_bytes(_NONCE_BYTES)
        head = f"{self.prefix}.{key.key_id}"
        sealed = nonce + AESGCM(self._derive(key)).encrypt(nonce, plain, head.encode())
        return f"{head}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"

    def open(self, text: object, ring: KeyRing) -> bytes:
        """Return what `seal` sealed. Raises NotSealedError for anything else."""
        if not isinstance(text, str) or len(text) > self.longest or not self.is_ours(text):
            raise NotSealedError
        match = _FORM.fullmatch(text, len(self.prefix))
        key = ring.find(match[1]) if match else None
        if match is None or key is None:
            raise NotSealedError
        try:
            sealed = base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4))
            head = f"{self.prefix}.{match[1]}".encode()
            return AESGCM(self._derive(key)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], head)
        except (binascii.Error, InvalidTag, ValueError) as error:
            raise NotSealedError from error

    def _derive(self, key: SigningKey) -> bytes:
        return hmac.new(key.secret, self.purpose, hashlib.sha256).digest()
