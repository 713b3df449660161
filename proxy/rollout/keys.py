"""The keys of the roll-out: a private one of whoever publishes policies, and the public ones that a replica trusts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from proxy.audit.signing_keys import PublicKey, read_public
from proxy.errors import ConfigError
from proxy.system.secret_files import make_private, read_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def default_key_file(state_dir: Path) -> Path:
    return state_dir / "keys" / "policy-signing.pem"


def default_trusted(state_dir: Path) -> Path:
    return state_dir / "keys" / "policy-public"


def make_key(path: Path) -> PublicKey:
    """Make a private key, unless the file exists; return its public half. Raises ConfigError."""
    form = serialization.PrivateFormat.PKCS8
    made = Ed25519PrivateKey.generate()
    make_private(path, made.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return PublicKey.of(read_key(path)[1].public_key())


def read_key(path: Path) -> tuple[str, Ed25519PrivateKey]:
    """Return the id of a private key, and the key. Raises ConfigError."""
    try:
        key = serialization.load_pem_private_key(read_private(path), None)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no key at {path}; `interlock policy key` makes one, or name another with --key"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a private key ({error}); name another with --key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{path} is no Ed25519 key; `interlock policy key` makes one")
    return PublicKey.of(key.public_key()).key_id, key


def trust(key: PublicKey, folder: Path) -> Path:
    """Put a public key among those that are trusted; return its file."""
    path = folder / f"{key.key_id}.pem"
    make_private(path, key.pem())
    return path


def trusted_keys(path: Path) -> Mapping[str, PublicKey]:
    """Return the keys of a PEM file, of every *.pem of a folder, or of a list, by their ids. Raises ConfigError."""
    files = sorted(path.glob("*.pem")) if path.is_dir() else [path]
    if not path.exists():
        return {}
    if path.suffix == ".json":
        try:
            return keys_of_list(path.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read as a list of public keys ({error})") from error
    return {key.key_id: key for key in read_public(files)}


def key_entry(key: PublicKey, added: float) -> dict[str, Any]:
    """Return what a list says of a key."""
    return {"key": key.raw().hex(), "added": added}


def keys_of_list(data: bytes) -> dict[str, PublicKey]:
    """Return the keys of a list, by their ids. Raises ValueError."""
    entries = json.loads(data)
    if not isinstance(entries, dict):
        raise ValueError("it is no list of keys")  # noqa: TRY004  as for every other form
    return {str(name): _listed(str(name), entry) for name, entry in entries.items()}


def _listed(name: str, entry: Any) -> PublicKey:
    try:
        key = PublicKey.of(Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry["key"])))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{name!r} is no Ed25519 public key") from error
    if key.key_id != name:
        raise ValueError(f"{name!r} is the key {key.key_id}")
    return key
