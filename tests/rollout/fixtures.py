"""Policies, keys and steps for the tests of the roll-out."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.audit.signing_keys import PublicKey
from proxy.rollout.bundle import Bundle
from proxy.rollout.step import Canary, Step, Version

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
PUBLIC, OTHER = PublicKey.of(KEY.public_key()), PublicKey.of(OTHER_KEY.public_key())
KEYS = {PUBLIC.key_id: PUBLIC}
SIGNER = (PUBLIC.key_id, KEY)


def bundle(*denied: str, default: str = "allow", more: str = "") -> Bundle:
    """Return a policy that denies tools."""
    rules = "".join(f"  - {{id: no-{tool}, action: deny, tools: [{tool}]}}\n" for tool in denied)
    text = f"version: 1\ndefault: {default}\n" + (f"rules:\n{rules}" if rules else "") + more
    return Bundle({"policy.yaml": text}, "policy.yaml")


def step(number: int = 1, of: Bundle | None = None, **fields: Any) -> Step:
    given: dict[str, Any] = {"action": "push", "operator": "olga", "at": 1_763_000_000.5, "previous": "", **fields}
    stable = given.pop("stable", None) or Version(number, (of or bundle("shell")).digest)
    return Step(number=number, stable=stable, **given)


def canary(number: int, of: Bundle, **whom: Any) -> Canary:
    return Canary(Version(number, of.digest), **whom)
