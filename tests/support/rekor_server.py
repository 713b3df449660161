"""A transparency log on loopback that speaks as much of Rekor's API, version 1, as is used, and can misbehave.

It keeps a real Merkle tree (RFC 6962) of the entries in memory, checks what is posted as Rekor does, and signs with a
key of its own. It is not Rekor: no shards, no other kinds of entries, nothing on disk.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from proxy.audit.merkle import inclusion_proof, leaf_hash, root_hash
from tests.support.loopback import serve

TREE = "0000000000000007"
PUBLIC = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass
class RekorServer:
    """`status` other than 0 is what every request gets; `change` makes another answer of an entry."""

    url: str = ""
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    bodies: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    status: int = 0
    refuse: Callable[[dict[str, Any]], bool] = lambda _: False
    change: Callable[[dict[str, Any]], Any] = lambda entry: entry
    held: threading.Event | None = None
    asked: threading.Event = field(default_factory=threading.Event)

    @property
    def pem(self) -> bytes:
        return self.key.public_key().public_bytes(*PUBLIC)

    @property
    def digests(self) -> list[str]:
        return [json.loads(body)["spec"]["data"]["hash"]["value"] for body in self.bodies]

    @property
    def leaves(self) -> list[bytes]:
        return [leaf_hash(body) for body in self.bodies]

    def sign(self, text: bytes) -> bytes:
        return self.key.sign(text, ec.ECDSA(hashes.SHA256()))

    def add(self, proposed: dict[str, Any]) -> tuple[int, str, Any]:
        """Return a status, the entry's id, and the answer."""
        if self.refuse(proposed) or not _is_signed(proposed):
            return 400, "", {"code": 400, "message": "error processing entry: verifying signature"}
        body = json.dumps(proposed, sort_keys=True, separators=(",", ":")).encode()
        data = proposed["spec"]["data"]["hash"]["value"]
        if data in self.digests:  # Rekor goes by the whole entry; a new ECDSA signature would be a new one there
            return 409, self.entry_id(self.digests.index(data)), {"code": 409, "message": "an equivalent entry exists"}
        self.bodies.append(body)
        self.times.append(int(time.time()))
        name = self.entry_id(len(self.bodies) - 1)
        return 201, name, {name: self.entry(len(self.bodies) - 1)}

    def entry_id(self, index: int) -> str:
        return TREE + self.leaves[index].hex()

    def entry(self, index: int) -> dict[str, Any]:
        der = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        entry: dict[str, Any] = {
            "body": base64.b64encode(self.bodies[index]).decode(),
            "integratedTime": self.times[index],
            "logID": hashlib.sha256(self.key.public_key().public_bytes(*der)).hexdigest(),
            "logIndex": index + 1000,  # of all shards together
        }
        stamp = self.sign(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode())
        entry["attestation"] = {}
        proof = {
            "checkpoint": self.note(),
            "hashes": [one.hex() for one in inclusion_proof(self.leaves, index)],
            "logIndex": index,
            "rootHash": root_hash(self.leaves).hex(),
            "treeSize": len(self.leaves),
        }
        signed = base64.b64encode(stamp).decode()
        entry["verification"] = {"inclusionProof": proof, "signedEntryTimestamp": signed}
        changed: dict[str, Any] = self.change(entry)
        return changed

    def note(self) -> str:
        root = base64.b64encode(root_hash(self.leaves)).decode()
        text = f"log.test - 7\n{len(self.leaves)}\n{root}\n"
        return f"{text}\n\N{EM DASH} log.test {base64.b64encode(b'hint' + self.sign(text.encode())).decode()}\n"


def _is_signed(proposed: dict[str, Any]) -> bool:
    """Whether the entry's key signed its hash, as Rekor asks of a hashedrekord."""
    spec = proposed["spec"]
    digest = bytes.fromhex(spec["data"]["hash"]["value"])
    signature = spec["signature"]
    key = serialization.load_pem_public_key(base64.b64decode(signature["publicKey"]["content"]))
    if proposed["kind"] != "hashedrekord" or not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    with contextlib.suppress(InvalidSignature):
        key.verify(base64.b64decode(signature["content"]), digest, ec.ECDSA(Prehashed(hashes.SHA256())))
        return True
    return False


def _handler(log: RekorServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            proposed = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._answer(lambda: log.add(proposed))

        def do_GET(self) -> None:
            self._answer(self._found)

        def _found(self) -> tuple[int, str, Any]:
            name = self.path.rpartition("/")[2]
            if self.path == "/api/v1/log":
                return 200, "", {"treeSize": len(log.bodies), "rootHash": root_hash(log.leaves).hex()}
            if self.path == "/api/v1/log/publicKey":
                return 200, "", log.pem
            known = [index for index in range(len(log.bodies)) if log.entry_id(index) == name]
            return (200, name, {name: log.entry(known[0])}) if known else (404, "", {"code": 404, "message": "none"})

        def _answer(self, make: Callable[[], tuple[int, str, Any]]) -> None:
            log.asked.set()
            if log.held is not None:
                log.held.wait(60)
            status, name, said = (log.status, "", {"message": "away"}) if log.status else make()
            data = said if isinstance(said, bytes) else json.dumps(said).encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if name:
                    self.send_header("Location", f"/api/v1/log/entries/{name}")
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def start_rekor() -> Iterator[RekorServer]:
    log = RekorServer()
    with serve(_handler(log)) as log.url:
        try:
            yield log
        finally:
            if log.held is not None:
                log.held.set()
