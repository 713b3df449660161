"""Merkle trees with the hashing of RFC 6962: the root over a list of texts, and the proof that one is in it. Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY = sha256(b"").digest()


def leaf_hash(text: bytes) -> bytes:
    """Return the hash of a leaf. The 0 keeps it apart from a node's, so that no node passes for a leaf."""
    return sha256(b"\0" + text).digest()


def _levels(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return the hashes of each level, from the leaves to the root."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = zip(below[::2], below[1::2], strict=False)
        above = [sha256(b"\1" + left + right).digest() for left, right in pairs]
        # A hash without a partner goes up as it is: the tree of RFC 6962 splits at the largest power of two.
        levels.append(above + below[-1:] if len(below) % 2 else above)
    return levels


def root_hash(leaves: Sequence[bytes]) -> bytes:
    """Return the root over hashes of leaves."""
    return _levels(leaves)[-1][0] if leaves else EMPTY


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that lead from a leaf to the root, the nearest first. Raises IndexError."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"there is no leaf {index} among {len(leaves)}")
    proof = []
    for level in _levels(leaves)[:-1]:
        beside = index ^ 1
        if beside < len(level):
            proof.append(level[beside])
        index //= 2
    return proof


def root_from_proof(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes:
    """Return the root that a proof leads to. Raises ValueError for a proof of another length, or no such leaf."""
    if not 0 <= index < size:
        raise ValueError(f"there is no leaf {index} among {size}")
    rest, last, found = list(proof), size - 1, leaf
    while last:
        if index % 2 or index < last:
            if not rest:
                raise ValueError("the proof is too short")
            beside = rest.pop(0)
            pair = beside + found if index % 2 else found + beside
            found = sha256(b"\1" + pair).digest()
        index, last = index // 2, last // 2
    if rest:
        raise ValueError("the proof is too long")
    return found
