"""The hash chain: what the documentation says, byte by byte."""

from __future__ import annotations

import hashlib

import pytest

from proxy.core.event import link, start


def test_a_link_is_the_hash_of_the_link_before_the_number_and_the_text() -> None:
    head = start("writer-1")
    assert (head.writer, head.seq) == ("writer-1", 0)
    assert head.hash == hashlib.sha256(b"interlock-chain-1\x00writer-1").hexdigest()
    expected = hashlib.sha256(bytes.fromhex(head.hash) + b"\0\0\0\0\0\0\1\0" + "{é}".encode()).hexdigest()
    assert link(head.hash, 256, "{é}") == expected


@pytest.mark.parametrize("other", [("0" * 64, 1, "a"), ("1" * 64, 2, "a"), ("1" * 64, 1, "b")])
def test_every_part_counts(other: tuple[str, int, str]) -> None:
    assert link(*other) != link("1" * 64, 1, "a")
