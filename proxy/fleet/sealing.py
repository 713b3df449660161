"""Seals what is shared: keys are encrypted under the key-encryption key, lists are authenticated.

Fleet, name and generation are bound into each seal. A row that was put under another name, into another database, or
given another number opens nothing. Pure, but for random numbers.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from proxy.fleet.key_encryption_key import KeyEncryptionKey

NONCE_BYTES: Final = 12
PROBE: Final = b"interlock fleet probe"


class SealError(ConfigError):
    """A shared row that cannot be opened: another key-encryption key, or somebody changed it."""


def seal(kek: KeyEncryptionKey, fleet_id: str, name: str, generation: int, plain: bytes) -> tuple[bytes, bytes]:
    """Return a secret encrypted, and the nonce."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return AESGCM(kek.derive("seal")).encrypt(nonce, plain, place(fleet_id, name, generation)), nonce


def unseal(kek: KeyEncryptionKey, fleet_id: str, name: str, generation: int, body: bytes, nonce: bytes) -> bytes:
    """Return the secret. Raises SealError where the key is another, or anything was changed."""
    try:
        return AESGCM(kek.derive("seal")).decrypt(nonce, body, place(fleet_id, name, generation))
    except (InvalidTag, ValueError) as error:
        raise SealError(
            f"the shared {name} cannot be opened with the key-encryption key {kek.key_id}: "
            "it was sealed with another one, or the row was changed"
        ) from error


def authenticate(state_key: bytes, fleet_id: str, name: str, generation: int, body: bytes) -> bytes:
    """Return the seal of what is no secret, but must be nobody's but ours."""
    return hmac.digest(state_key, place(fleet_id, name, generation) + body, "sha256")


def check(state_key: bytes, fleet_id: str, name: str, generation: int, body: bytes, given: bytes) -> None:
    """Raise SealError unless `given` is the seal of this text in this place."""
    if not hmac.compare_digest(authenticate(state_key, fleet_id, name, generation, body), given):
        raise SealError(f"the shared {name} was changed by somebody who has no key of this fleet")


def place(fleet_id: str, name: str, generation: int) -> bytes:
    """Return where a row belongs, in one reading: no part of it can be taken for another."""
    parts = (b"interlock-fleet-1", fleet_id.encode(), name.encode(), str(generation).encode())
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def key_id(name: str, secret: bytes) -> str:
    """Name a key by a hash: all that are shared have 256 random bits or more."""
    return hashlib.sha256(b"interlock shared key\0" + name.encode() + b"\0" + secret).hexdigest()[:16]
