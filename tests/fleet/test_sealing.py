from __future__ import annotations

import itertools

import pytest

from proxy.fleet import sealing
from proxy.fleet.key_encryption_key import KeyEncryptionKey
from proxy.fleet.sealing import SealError
from tests.support.fleet_fixture import KEK, OTHER_KEK

ONE, OTHER = (KeyEncryptionKey(bytes.fromhex(text)) for text in (KEK, OTHER_KEK))
PLACE = ("fleet", "secret:mask", 3)
ELSEWHERE = [("fleet2", "secret:mask", 3), ("fleet", "secret:seal", 3), ("fleet", "secret:mask", 4)]


def test_a_secret_opens_with_its_key_in_its_place() -> None:
    body, nonce = sealing.seal(ONE, *PLACE, b"the key")
    assert sealing.unseal(ONE, *PLACE, body, nonce) == b"the key"
    assert b"the key" not in body


def test_two_seals_of_one_secret_tell_nothing_of_each_other() -> None:
    assert sealing.seal(ONE, *PLACE, b"x" * 32) != sealing.seal(ONE, *PLACE, b"x" * 32)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_secret_in_another_place_does_not_open(place: tuple[str, str, int]) -> None:
    body, nonce = sealing.seal(ONE, *PLACE, b"the key")
    with pytest.raises(SealError, match="cannot be opened"):
        sealing.unseal(ONE, *place, body, nonce)


def test_any_changed_bit_and_any_other_key_is_found() -> None:
    body, nonce = sealing.seal(ONE, *PLACE, b"the key")
    for number, bit in itertools.product(range(len(body)), range(8)):
        changed = bytearray(body)
        changed[number] ^= 1 << bit
        with pytest.raises(SealError):
            sealing.unseal(ONE, *PLACE, bytes(changed), nonce)
    for wrong in (b"", nonce[:-1], bytes(12)):
        with pytest.raises(SealError):
            sealing.unseal(ONE, *PLACE, body, wrong)
    with pytest.raises(SealError, match=OTHER.key_id):
        sealing.unseal(OTHER, *PLACE, body, nonce)


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_list_counts_in_its_place_alone(place: tuple[str, str, int]) -> None:
    made = sealing.authenticate(b"k" * 32, *PLACE, b"{}")
    sealing.check(b"k" * 32, *PLACE, b"{}", made)
    for key, where, body in ((b"k" * 32, place, b"{}"), (b"l" * 32, PLACE, b"{}"), (b"k" * 32, PLACE, b"{} ")):
        with pytest.raises(SealError, match="no key of this fleet"):
            sealing.check(key, *where, body, made)


def test_no_two_places_read_alike() -> None:
    places = [("ab", "c", 1), ("a", "bc", 1), ("a", "b", 11), ("a", "b1", 1)]
    assert len({sealing.place(*one) for one in places}) == len(places)
