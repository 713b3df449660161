"""Sealed texts: one purpose each. The tests of request_state and task_id have what they hold, and every change."""

from __future__ import annotations

import pytest

from proxy.twophase.sealed_text import NotSealedError, Seal
from proxy.twophase.tokens import KeyRing, SigningKey

RING = KeyRing(SigningKey("k1", b"k" * 32))
ONE, OTHER = Seal("a1", b"one", 1000), Seal("a1", b"another", 1000)


def test_what_is_sealed_for_one_purpose_opens_for_no_other() -> None:
    sealed = ONE.seal(b"secret", RING)
    assert ONE.open(sealed, RING) == b"secret"
    for seal in (OTHER, Seal("b1", b"one", 1000), Seal("a1", b"one", 10)):
        with pytest.raises(NotSealedError):
            seal.open(sealed, RING)
    with pytest.raises(NotSealedError):
        Seal("b1", b"one", 1000).open("b1" + sealed[2:], RING)


def test_a_prefix_is_a_whole_word() -> None:
    assert not ONE.is_ours("a12.k1.x")
    assert not ONE.is_ours(b"a1.k1.x")
