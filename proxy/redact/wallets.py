"""Check sums of wallets: seed phrases of BIP-39, and addresses in bech32. Pure but for reading the word list."""

from __future__ import annotations

import functools
import hashlib
import re
from importlib.resources import files
from typing import Final

_WORD: Final = re.compile(rb"[a-z]+")
_PHRASES: Final = (24, 21, 18, 15, 12)
_CHARSET: Final = {byte: value for value, byte in enumerate(b"qpzry9x8gf2tvdw0s3jn54khce6mua7l")}
_BASE58: Final = {
    byte: value for value, byte in enumerate(b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")
}
_ADDRESS_BITS: Final = 25 * 8
_GENERATORS: Final = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CONSTANTS: Final = (1, 0x2BC830A3)  # bech32 and bech32m


@functools.cache
def word_numbers() -> dict[bytes, int]:
    """Return the number of each of the 2048 English words of BIP-39."""
    listed = files(__package__).joinpath("bip39_english.txt").read_bytes().split()
    return {word: number for number, word in enumerate(listed)}


def seed_phrase(value: bytes) -> int:
    """Return how much of `value`, from its first word, is a phrase whose checksum is right; 0 for none."""
    known, numbers, ends = word_numbers(), [], []
    for match in _WORD.finditer(value):
        number = known.get(match.group())
        if number is None:
            break
        numbers.append(number)
        ends.append(match.end())
    return next((ends[size - 1] for size in _PHRASES if size <= len(numbers) and _is_phrase(numbers[:size])), 0)


def _is_phrase(numbers: list[int]) -> bool:
    checked = len(numbers) // 3  # bits of the checksum
    whole = functools.reduce(lambda sum_, number: sum_ << 11 | number, numbers, 0)
    entropy = (whole >> checked).to_bytes(checked * 4)
    return hashlib.sha256(entropy).digest()[0] >> (8 - checked) == whole & ((1 << checked) - 1)


def base58_address(value: bytes) -> bool:
    """Return whether `value` is 21 bytes and their checksum, as Bitcoin writes addresses."""
    number = 0
    for byte in value:
        number = number * 58 + _BASE58[byte]
    if number.bit_length() > _ADDRESS_BITS:
        return False
    whole = number.to_bytes(_ADDRESS_BITS // 8)
    return hashlib.sha256(hashlib.sha256(whole[:-4]).digest()).digest()[:4] == whole[-4:]


def bech32(value: bytes) -> bool:
    """Return whether `value` ends in its own checksum, in one case throughout."""
    lowered = value.lower()
    if value not in (lowered, value.upper()):
        return False
    prefix, _, data = lowered.rpartition(b"1")
    if any(byte not in _CHARSET for byte in data):
        return False
    expanded = [byte >> 5 for byte in prefix] + [0] + [byte & 31 for byte in prefix]
    return _polymod([*expanded, *(_CHARSET[byte] for byte in data)]) in _CONSTANTS


def _polymod(values: list[int]) -> int:
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATORS):
            check ^= generator if top >> bit & 1 else 0
    return check
