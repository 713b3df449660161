"""The state that a client of revision 2026-07-28 sends back with its answer: sealed, and bound to one exact call. Pure.

    ilks1.<key id>.<base64url of nonce and AES-GCM>

Encrypted and authenticated with a key that is derived from the commit keys, which all replicas share: whichever of them
gets the answer can open it, and the client can neither read nor change it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.errors import PhaseError

if TYPE_CHECKING:
    from proxy.twophase.tokens import KeyRing, SigningKey

PREFIX: Final = "ilks1."
MAX_STATE: Final = 8192
_FORM: Final = re.compile(r"ilks1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]+)")
_PURPOSE: Final = b"interlock request state"
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class RequestState:
    """Which proposal a client waits for, and the exact call that it is of."""

    proposal_id: str
    principal: str
    server: str
    tool: str
    arguments_hash: str


def is_ours(text: object) -> bool:
    """Return whether a `requestState` is one that this proxy gave out, and none of the server's."""
    return isinstance(text, str) and text.startswith(PREFIX)


def seal(state: RequestState, ring: KeyRing) -> str:
    key, nonce = ring.current, secrets.token_bytes(_NONCE_BYTES)
    head = f"{PREFIX}{key.key_id}"
    sealed = nonce + AESGCM(_derive(key)).encrypt(nonce, json.dumps(asdict(state)).encode(), head.encode())
    return f"{head}.{base64.urlsafe_b64encode(sealed).decode().rstrip('=')}"


def open_state(text: object, ring: KeyRing) -> RequestState:
    """Return what `seal` sealed. Raises PhaseError `bad_signature` for anything else."""
    match = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_STATE else None
    key = ring.find(match[1]) if match else None
    if match is None or key is None:
        raise PhaseError("bad_signature", "the requestState is not one that was given out here")
    try:
        sealed = base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4))
        head = f"{PREFIX}{match[1]}".encode()
        opened = AESGCM(_derive(key)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], head)
        return RequestState(**json.loads(opened))
    except (binascii.Error, InvalidTag, ValueError, TypeError) as error:
        raise PhaseError("bad_signature", "the requestState was changed on its way") from error


def _derive(key: SigningKey) -> bytes:
    return hmac.new(key.secret, _PURPOSE, hashlib.sha256).digest()
