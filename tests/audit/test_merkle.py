"""Merkle trees: the root is that of RFC 6962's own definition, and every proof leads to it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from proxy.audit.merkle import inclusion_proof, leaf_hash, root_hash
from tests.support.receipt_script import verify_receipt


def defined(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962, section 2.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + defined(leaves[:split]) + defined(leaves[split:])).digest()


@pytest.mark.parametrize("size", [*range(18), 63, 64, 65])
def test_roots_and_proofs_are_those_of_the_rfc(size: int) -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(size)]
    assert root_hash(leaves) == defined(leaves)
    for index in range(size):
        proof = [one.hex() for one in inclusion_proof(leaves, index)]
        assert verify_receipt.root_from_proof(leaves[index], index, size, proof) == root_hash(leaves)


def test_a_leaf_is_no_node_and_a_number_outside_has_no_proof() -> None:
    assert leaf_hash(b"") == sha256(b"\0").digest()
    with pytest.raises(IndexError):
        inclusion_proof([leaf_hash(b"x")], 1)
