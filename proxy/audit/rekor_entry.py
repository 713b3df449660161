"""Entries of a transparency log that speaks Rekor's API, version 1: what is proposed, and what an entry proves. Pure.

An entry of kind `hashedrekord` says that a key signed a text with this SHA-256. Three things prove that the log has it:
the log's signature over the entry and its time (the signed entry timestamp), a way from the entry to the root of the
log's Merkle tree (RFC 6962), and the log's signature over that root (a signed note, which Rekor calls checkpoint).
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from proxy.audit.merkle import leaf_hash, root_from_proof

if TYPE_CHECKING:
    from collections.abc import Mapping

_HASHES: Mapping[int, hashes.HashAlgorithm] = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
_HINT = 4  # bytes before the signature in a line of a signed note
_DASH = "\N{EM DASH} "


class BadEntryError(ValueError):
    """An entry that does not prove what it should; the message says why."""


@dataclass(frozen=True, slots=True)
class LogKey:
    """The public key of a log."""

    log_id: str
    _key: ec.EllipticCurvePublicKey | Ed25519PublicKey

    @classmethod
    def parse(cls, pem: bytes) -> LogKey:
        """Read a key. Raises ValueError where it is none that a log can have."""
        key = serialization.load_pem_public_key(pem)
        if not isinstance(key, ec.EllipticCurvePublicKey | Ed25519PublicKey):
            raise ValueError("a log's key is one of ECDSA or Ed25519")  # noqa: TRY004  the caller has one kind of error
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return cls(hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest(), key)

    def verifies(self, signature: bytes, text: bytes) -> bool:
        try:
            if isinstance(self._key, Ed25519PublicKey):
                self._key.verify(signature, text)
            else:
                self._key.verify(signature, text, ec.ECDSA(_HASHES[self._key.key_size]))
        except (InvalidSignature, KeyError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class Logged:
    """What an entry proves: since when the log has it, and where."""

    time: float
    index: int


def propose(digest: str, signature: bytes, public_pem: bytes) -> dict[str, Any]:
    """Return an entry to post: a key signed the text with this SHA-256."""
    key = {"content": base64.b64encode(public_pem).decode()}
    signed = {"content": base64.b64encode(signature).decode(), "publicKey": key}
    data = {"hash": {"algorithm": "sha256", "value": digest}}
    return {"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": {"signature": signed, "data": data}}


def check_entry(entry: Any, digest: str, key: LogKey) -> Logged:
    """Return what the log says of the text with this SHA-256. Raises BadEntryError unless all of it is proven."""
    try:
        body = base64.b64decode(entry["body"], validate=True)
        _check_subject(json.loads(body), digest)
        logged = _check_timestamp(entry, key)
        _check_tree(entry["verification"]["inclusionProof"], body, key)
    except BadEntryError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadEntryError(f"it is no entry of a log with its proof ({type(error).__name__}: {error})") from error
    return logged


def _check_subject(body: Any, digest: str) -> None:
    said = body["spec"]["data"]["hash"]
    if body["kind"] != "hashedrekord" or (said["algorithm"], said["value"]) != ("sha256", digest):
        raise BadEntryError("it is an entry about something else")


def _check_timestamp(entry: Any, key: LogKey) -> Logged:
    if entry["logID"] != key.log_id:
        raise BadEntryError(f"it is of log {entry['logID']!r}, and the key is that of {key.log_id}")
    names = ("body", "integratedTime", "logID", "logIndex")
    # RFC 8785 for these types: the names in order, no spaces.
    signed = json.dumps({name: entry[name] for name in names}, separators=(",", ":")).encode()
    stamp = base64.b64decode(entry["verification"]["signedEntryTimestamp"], validate=True)
    if type(entry["integratedTime"]) is not int or type(entry["logIndex"]) is not int:
        raise BadEntryError("its time or index is no number")
    if not key.verifies(stamp, signed):
        raise BadEntryError("the log's signature over its time is wrong")
    return Logged(float(entry["integratedTime"]), entry["logIndex"])


def _check_tree(proof: Any, body: bytes, key: LogKey) -> None:
    index, size = proof["logIndex"], proof["treeSize"]
    if type(index) is not int or type(size) is not int:
        raise BadEntryError("its place in the tree is no number")
    root = root_from_proof(leaf_hash(body), index, size, [bytes.fromhex(one) for one in proof["hashes"]])
    if root.hex() != proof["rootHash"]:
        raise BadEntryError("its way through the tree leads to another root")
    if "checkpoint" not in proof:
        raise BadEntryError("the log gave no signed root")
    if signed_root(proof["checkpoint"], key) != (size, root):
        raise BadEntryError("the log signed another root")


def signed_root(note: str, key: LogKey) -> tuple[int, bytes]:
    """Return the size and the root of a tree that the log signed. Raises BadEntryError."""
    text, found, signatures = note.rpartition("\n\n")
    text += "\n"
    if not found or not any(key.verifies(one, text.encode()) for one in _signatures(signatures)):
        raise BadEntryError("the log's signature over its root is wrong")
    _, size, root, *_ = text.split("\n")
    return int(size), base64.b64decode(root, validate=True)


def _signatures(lines: str) -> list[bytes]:
    parts = [line.removeprefix(_DASH).split(" ") for line in lines.split("\n") if line.startswith(_DASH)]
    return [base64.b64decode(part[1], validate=True)[_HINT:] for part in parts if len(part) == 2]
