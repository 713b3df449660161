"""Merkle trees: the root is that of RFC 6962's own definition, and every proof leads to it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from proxy.audit.merkle import inclusion_proof, leaf_hash, root_from_proof, root_hash
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


# Reference vectors of Certificate Transparency (RFC 6962): eight leaves, and the root of the first 1, 2, … of them.
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_are_those_of_certificate_transparencys_vectors(size: int) -> None:
    leaves = [leaf_hash(bytes.fromhex(text)) for text in LEAVES[:size]]
    assert root_hash(leaves).hex() == ROOTS[size - 1]
    for index, leaf in enumerate(leaves):
        assert root_from_proof(leaf, index, size, inclusion_proof(leaves, index)).hex() == ROOTS[size - 1]


def test_a_proof_of_another_length_place_or_leaf_is_none() -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(7)]
    proof, root = inclusion_proof(leaves, 3), root_hash(leaves)
    assert root_from_proof(leaves[3], 3, 7, proof) == root
    assert root_from_proof(leaves[2], 3, 7, proof) != root
    assert root_from_proof(leaves[3], 2, 7, proof) != root
    for index, size, path, why in (
        (3, 7, proof[:-1], "short"),
        (3, 7, [*proof, root], "long"),
        (7, 7, proof, "no leaf"),
        (-1, 7, proof, "no leaf"),
        (0, 0, [], "no leaf"),
    ):
        with pytest.raises(ValueError, match=why):
            root_from_proof(leaves[3], index, size, path)
