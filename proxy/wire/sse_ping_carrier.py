"""Answers of the proxy that have to travel by way of the other side: as the id of a `ping`. Pure.

To a client, over legacy HTTP+SSE, where a POST is only acknowledged and answers come on the GET stream: a message that
the proxy answers itself is forwarded as a `ping` whose id carries the encrypted answer. The server echoes the id on the
right stream, whichever worker holds that stream, and the answer is decrypted there.

To a server, on every transport: a request of the server's that is refused reaches the client as a `ping` whose id
carries the refusal. The client answers at once, as all do, and what the server gets of that is the refusal.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from proxy.wire.jsonrpc import parse_json, serialise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject

PREFIX = "ilk1:"
TO_SERVER = "ilk2:"
KEY_BYTES = 32
_NONCE_BYTES = 12


def carrier(answers: Sequence[JsonObject], key: bytes, prefix: str = PREFIX) -> JsonObject:
    """Return the `ping` that carries `answers` to the stream they belong on."""
    # Encrypted and not only signed: the server must not read what the proxy tells the client.
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = nonce + AESGCM(key).encrypt(nonce, serialise(list(answers)), prefix.encode())
    token = base64.urlsafe_b64encode(sealed).decode().rstrip("=")
    return {"jsonrpc": "2.0", "id": prefix + token, "method": "ping"}


def carried(message_id: object, key: bytes, prefix: str = PREFIX) -> list[JsonObject] | None:
    """Return the answers that `carrier` put into an id; None where it is not one of ours."""
    if not (isinstance(message_id, str) and message_id.startswith(prefix)):
        return None
    token = message_id.removeprefix(prefix)
    try:
        sealed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        opened = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], prefix.encode())
    except (binascii.Error, InvalidTag, ValueError):
        return None
    answers = parse_json(opened)
    return answers if isinstance(answers, list) else None  # type: ignore[return-value]
