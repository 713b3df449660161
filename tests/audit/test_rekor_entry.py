"""What an entry of a transparency log proves: with one of the public log of Sigstore, and with forged ones."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed

from proxy.audit.rekor_entry import BadEntryError, LogKey, check_entry, propose, signed_root
from tests.support.rekor_server import PUBLIC, RekorServer, start_rekor

PUBLISHED = json.loads((Path(__file__).parent / "rekor_entry.json").read_text())
DIGEST: str = PUBLISHED["artifact_sha256"]
KEY = LogKey.parse(PUBLISHED["log_key"].encode())


@pytest.fixture
def entry() -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(PUBLISHED["entry"])
    return made


@pytest.fixture(scope="module")
def server() -> Iterator[RekorServer]:
    with start_rekor() as log:
        yield log


def test_an_entry_of_the_public_log_proves_what_it_says(entry: dict[str, Any]) -> None:
    logged = check_entry(entry, DIGEST, KEY)
    assert (logged.time, logged.index) == (1710888076, 79605083)
    size, root = signed_root(entry["verification"]["inclusionProof"]["checkpoint"], KEY)
    assert (size, root.hex()) == (75441653, entry["verification"]["inclusionProof"]["rootHash"])


def proof(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = entry["verification"]["inclusionProof"]
    return found


def other_body(entry: dict[str, Any]) -> None:
    body = json.loads(base64.b64decode(entry["body"]))
    body["spec"]["signature"]["content"] = "AAAA"
    entry["body"] = base64.b64encode(json.dumps(body).encode()).decode()


def other_kind(entry: dict[str, Any]) -> None:
    body = json.loads(base64.b64decode(entry["body"])) | {"kind": "rekord"}
    entry["body"] = base64.b64encode(json.dumps(body).encode()).decode()


FORGED: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (other_body, "signature over its time"),
    (other_kind, "about something else"),
    (lambda entry: entry.update(integratedTime=1710888075), "signature over its time"),
    (lambda entry: entry.update(integratedTime=1710888076.0), "no number"),
    (lambda entry: entry.update(logIndex=True), "no number"),
    (lambda entry: entry.update(logIndex=1), "signature over its time"),
    (lambda entry: entry.update(logID="00" * 32), "it is of log"),
    (lambda entry: entry["verification"].pop("signedEntryTimestamp"), "no entry of a log"),
    (lambda entry: entry["verification"].update(signedEntryTimestamp="AAAA"), "signature over its time"),
    (lambda entry: entry["verification"].pop("inclusionProof"), "no entry of a log"),
    (lambda entry: proof(entry)["hashes"].reverse(), "leads to another root"),
    (lambda entry: proof(entry)["hashes"].pop(), "too short"),
    (lambda entry: proof(entry)["hashes"].append("00" * 32), "too long"),
    (lambda entry: proof(entry).update(logIndex=75441651), "another root|too short"),
    (lambda entry: proof(entry).update(logIndex=-1), "there is no leaf"),
    (lambda entry: proof(entry).update(treeSize=True), "no number"),
    (lambda entry: proof(entry).update(rootHash="00" * 32), "leads to another root"),
    (lambda entry: proof(entry).pop("checkpoint"), "no signed root"),
    (lambda entry: proof(entry).update(checkpoint="log\n1\nAAAA\n"), "signature over its root"),
    (lambda entry: proof(entry).update(checkpoint=7), "no entry of a log"),
    (
        lambda entry: proof(entry).update(checkpoint=proof(entry)["checkpoint"].replace("75441653", "75441654")),
        "signature over its root",
    ),
]


@pytest.mark.parametrize(("forge", "why"), FORGED)
def test_whatever_is_changed_in_it_proves_nothing(
    forge: Callable[[dict[str, Any]], Any], why: str, entry: dict[str, Any]
) -> None:
    forge(entry)
    with pytest.raises(BadEntryError, match=why):
        check_entry(entry, DIGEST, KEY)


@pytest.mark.parametrize("entry_", [None, [], "x", 7, {}, {"body": "!"}, {"body": "W10="}, {"body": "bnVsbA=="}])
def test_what_is_no_entry_at_all_is_refused_with_a_reason(entry_: Any) -> None:
    with pytest.raises(BadEntryError, match="no entry of a log with its proof"):
        check_entry(entry_, DIGEST, KEY)


def test_an_entry_about_another_text_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(BadEntryError, match="about something else"):
        check_entry(entry, "00" * 32, KEY)


def test_a_root_of_another_tree_is_refused_though_the_log_signed_it(server: RekorServer) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    for number in range(3):
        digest = f"{number:064x}"
        server.add(proposed(key, digest))
    entry, log_key = server.entry(1), LogKey.parse(server.pem)
    check_entry(entry, f"{1:064x}", log_key)
    server.add(proposed(key, f"{9:064x}"))
    proof(entry)["checkpoint"] = server.note()
    with pytest.raises(BadEntryError, match="the log signed another root"):
        check_entry(entry, f"{1:064x}", log_key)


def proposed(key: ec.EllipticCurvePrivateKey, digest: str) -> dict[str, Any]:

    signature = key.sign(bytes.fromhex(digest), ec.ECDSA(Prehashed(hashes.SHA256())))
    return propose(digest, signature, key.public_key().public_bytes(*PUBLIC))


def test_a_log_may_sign_with_ed25519_and_larger_curves() -> None:
    small = Ed25519PrivateKey.generate()
    assert LogKey.parse(small.public_key().public_bytes(*PUBLIC)).verifies(small.sign(b"x"), b"x")

    large = ec.generate_private_key(ec.SECP384R1())
    parsed = LogKey.parse(large.public_key().public_bytes(*PUBLIC))
    assert parsed.verifies(large.sign(b"x", ec.ECDSA(hashes.SHA384())), b"x")
    assert not parsed.verifies(large.sign(b"x", ec.ECDSA(hashes.SHA384())), b"y")


def test_another_kind_of_key_is_refused() -> None:
    key = rsa.generate_private_key(65537, 2048).public_key()
    for pem in (b"", b"none", key.public_bytes(*PUBLIC)):
        with pytest.raises(ValueError, match=r".+"):
            LogKey.parse(pem)
