"""The hash chain of a log: each event's link holds all that came before it. Pure.

Version 1, with || for concatenation of bytes:

    start       = SHA-256("interlock-chain-1" || 0x00 || writer)
    link of seq = SHA-256(link of seq-1 || seq as 8 bytes, big-endian || body)

`writer` and `body` are UTF-8; the body is the event's text exactly as stored; the
first event has seq 1, and the link before it is the start. Links are written in hex.
"""

from __future__ import annotations

from hashlib import sha256

from proxy.audit.event import Head

_START = b"interlock-chain-1\0"


def start(writer: str) -> Head:
    return Head(writer, 0, sha256(_START + writer.encode()).hexdigest())


def link(before: str, seq: int, body: str) -> str:
    """Return the link of event number `seq`, whose text is `body`, after the link `before`."""
    return sha256(bytes.fromhex(before) + seq.to_bytes(8) + body.encode()).hexdigest()
