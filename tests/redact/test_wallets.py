"""Check sums of wallets."""

import pytest

from proxy.redact import Masker
from proxy.redact.wallets import base58_address, bech32, seed_phrase, word_numbers
from tests.profiles.cases_file import secret
from tests.profiles.cases_file import seed_phrase as made_phrase

MASKER = Masker(b"k" * 32)


def test_the_word_list_is_the_one_of_bip_39():
    numbers = word_numbers()
    assert len(numbers) == 2048
    assert (numbers[b"abandon"], numbers[b"zoo"]) == (0, 2047)


@pytest.mark.parametrize("words", [12, 15, 18, 21, 24])
def test_a_phrase_is_told_by_its_checksum(words):
    phrase = made_phrase(f"x{words}", words).encode()
    assert seed_phrase(phrase) == len(phrase)
    rest = phrase.split()[1:]
    wrong = sum(seed_phrase(b" ".join([other, *rest])) > 0 for other in list(word_numbers())[:256])
    assert wrong < 64  # 4 bits of checksum at the least
    assert seed_phrase(b"unlisted " + phrase) == 0


@pytest.mark.parametrize("name", ["btc", "btc.2", "btc.3"])
def test_addresses_are_told_by_their_checksum(name):
    address = secret(name).encode()
    assert base58_address(address)
    assert not base58_address(address[:-1] + (b"2" if address[-1:] != b"2" else b"3"))
    segwit = secret(name.replace("btc", "btcsegwit")).encode()
    assert bech32(segwit)
    assert bech32(segwit.upper())
    assert not bech32(segwit[:-1] + (b"q" if segwit[-1:] != b"q" else b"p"))
    assert not bech32(segwit[:4].upper() + segwit[4:])


@pytest.mark.parametrize("name", ["seed", "seed24", "btc", "btcsegwit", "eth"])
def test_each_is_found_in_a_text_and_prose_is_not(name):
    assert {f.detector.partition(".")[0] for f in MASKER.mask(f"send {secret(name)} now", ["wallet"])[1]} == {"wallet"}
    prose = "I want to buy a table and chair, visit a museum, then cook some rice for dinner with my friend and family"
    assert MASKER.mask(prose, ["wallet"])[1] == ()
