"""The keys that sign checkpoints of the audit trail: Ed25519, in the state folder.

The private key that signs now is `keys/audit-signing.pem`, of its owner alone; the
public keys, also those of keys that were replaced, are in `keys/audit-public/`.
"""

from __future__ import annotations

import fcntl
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from proxy.errors import ConfigError
from proxy.system.secret_files import make_private, read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ID_LENGTH = 16


@dataclass(frozen=True, slots=True)
class PublicKey:
    key_id: str
    _key: Ed25519PublicKey

    @classmethod
    def of(cls, key: Ed25519PublicKey) -> PublicKey:
        return cls(hashlib.sha256(key.public_bytes_raw()).hexdigest()[:ID_LENGTH], key)

    def verifies(self, signature: bytes, text: bytes) -> bool:
        try:
            self._key.verify(signature, text)
        except InvalidSignature:
            return False
        return True

    def raw(self) -> bytes:
        return self._key.public_bytes_raw()

    def pem(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self._key.public_bytes(serialization.Encoding.PEM, form)


class AuditKeys:
    """The keys of one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._private = state_dir / "keys" / "audit-signing.pem"
        self._public = state_dir / "keys" / "audit-public"

    def signer(self) -> tuple[str, Ed25519PrivateKey]:
        """Return the key that signs and its id; the first one is made. Raises ConfigError where the file is no key."""
        if not self._private.exists():
            make_private(self._private, _private_pem(Ed25519PrivateKey.generate()))
        try:
            key = serialization.load_pem_private_key(read_private(self._private), None)
        except ValueError as error:
            raise ConfigError(f"{self._private} is no key; restore it, or delete it to make a new one") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigError(f"{self._private} is no Ed25519 key; restore it, or delete it to make a new one")
        public = PublicKey.of(key.public_key())
        self._publish(public)
        return public.key_id, key

    def can_sign(self) -> bool:
        """Return whether there is a private key; none is made."""
        return self._private.exists()

    def current(self) -> PublicKey:
        """Return the public half of the key that signs. Raises as `signer` does."""
        return PublicKey.of(self.signer()[1].public_key())

    def rotate(self) -> str:
        """Let a new key sign; the old one is destroyed, its public half stays. Return the new key's id."""
        self._private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._private.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._private.exists():
                self.signer()
            new = Ed25519PrivateKey.generate()
            public = PublicKey.of(new.public_key())
            self._publish(public)  # before the first signature with it
            write_private(self._private, _private_pem(new))
        return public.key_id

    def public(self) -> list[PublicKey]:
        return read_public(sorted(self._public.glob("*.pem")))

    def _publish(self, key: PublicKey) -> None:
        path = self._public / f"{key.key_id}.pem"
        if not path.exists():
            make_private(path, key.pem())


def read_public(files: Iterable[Path]) -> list[PublicKey]:
    """Read public keys from PEM files. Raises ConfigError where one is none."""
    keys = []
    for file in files:
        try:
            key = serialization.load_pem_public_key(file.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} cannot be read as a public key ({error})") from error
        if not isinstance(key, Ed25519PublicKey):
            raise ConfigError(f"{file} is no Ed25519 public key")
        keys.append(PublicKey.of(key))
    return keys


def _private_pem(key: Ed25519PrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
