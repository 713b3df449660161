"""Checks that a regular expression cannot make: check sums and the look of randomness.

Pure. A validator takes the bytes that a detector matched and returns how many of them, from the first, are a valid
value: 0 refuses the match, fewer than all of them trims it.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Final

import re2

from proxy.core.randomness import surprise
from proxy.redact.wallets import base58_address, bech32, seed_phrase

type Validator = Callable[[bytes], int]

_DIGITS: Final = frozenset(b"0123456789")
_LEAST_SURPRISE: Final = 5.2  # bits a character; names stay below, nearly always, and random texts above
_LONGEST_NAME: Final = 80
_DOUBLED: Final = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_LOWER: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGIT_BYTES: Final = bytes(_DIGITS)
_NAME: Final = bytes(_LOWER | _UPPER) + b"_.-"
_NOT_ASCII: Final = bytes(range(128, 256)) + b"/"
_NOT_DIGITS: Final = bytes(set(range(256)) - _DIGITS)
_NOT_ALNUM: Final = bytes(set(range(256)) - _DIGITS - _LOWER - _UPPER)


def digits_of(value: bytes) -> list[int]:
    """Return the decimal digits in `value`, in order."""
    return [byte - 48 for byte in value.translate(None, _NOT_DIGITS)]


def luhn(digits: list[int]) -> bool:
    """Return whether `digits` end in their Luhn check digit."""
    return (sum(digits[-1::-2]) + sum(_DOUBLED[digit] for digit in digits[-2::-2])) % 10 == 0


_SINGLE: Final = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLE: Final = bytes.maketrans(b"0123456789", bytes(_DOUBLED))


def weighted(digits: list[int], weights: tuple[int, ...]) -> int:
    """Return the sum of `digits` times `weights`, as far as both go."""
    return sum(digit * weight for digit, weight in zip(digits, weights, strict=False))


def _whole(check: Callable[[bytes], bool]) -> Validator:
    return lambda value: len(value) if check(value) else 0


def _on_digits(check: Callable[[list[int]], bool]) -> Validator:
    return lambda value: len(value) if check(digits_of(value)) else 0


def _divisible(modulus: int, *weights: tuple[int, ...]) -> Validator:
    # All zeros have every check sum, and fill forms where no number is known.
    return _on_digits(lambda digits: any(digits) and not any(weighted(digits, each) % modulus for each in weights))


@functools.cache
def _brand_lengths(digits: bytes) -> tuple[int, ...]:
    """Return the lengths, longest first, of the cards with these first four digits."""
    prefix = int(digits)
    first, two = prefix // 1000, prefix // 100
    if first == 4:
        return (19, 16)
    if two in {34, 37}:
        return (15,)
    if 51 <= two <= 55 or 2221 <= prefix <= 2720:
        return (16,)
    if 300 <= prefix // 10 <= 305 or two in {36, 38, 39}:
        return (19, 16, 14)
    return (19, 18, 17, 16) if two in {35, 60, 62, 64, 65} else ()


def card(value: bytes) -> int:
    """Accept the longest leading card number: brand, length, Luhn, usual groups, not one digit over and over."""
    # Every tenth number of 64 bits would be a card: so many digits in a row need a word that says card.
    return 0 if len(value) > 16 and value.isdigit() else long_card(value)


def long_card(value: bytes) -> int:
    """Accept a card number as `card` does, also one of more than 16 digits in a row."""
    # Thirteen digits are left out: few such cards live, and every tenth European article number would be one.
    plain = value.translate(None, _NOT_DIGITS)
    for length in _brand_lengths(plain[:4]):
        head = plain[:length]
        if len(head) < length:
            continue
        # The same sum as in `luhn`, by table look-ups: a table of numbers asks it of every row.
        total = sum(head[-1::-2].translate(_SINGLE)) + sum(head[-2::-2].translate(_DOUBLE))
        if total % 10 == 0 and len(set(head)) > 1:
            end = _end_after(value, length, _NOT_DIGITS)
            if (end == len(value) or value[end] not in _DIGITS) and _is_grouped(value[:end]):
                return end
    return 0


def _is_grouped(value: bytes) -> bool:
    """Return whether digits are grouped as people write them: alike and short, or as 4-6-5 and 4-6-4."""
    signs = value.translate(None, _DIGIT_BYTES)
    if not signs:
        return True
    sizes = [len(group) for group in value.split(signs[:1]) if group]
    alike = len(set(sizes[:-1])) == 1 and sizes[-1] <= sizes[0] <= 5
    return len(set(signs)) == 1 and (alike or sizes in ([4, 6, 5], [4, 6, 4]))


def _end_after(value: bytes, count: int, skipped: bytes) -> int:
    """Return where the first `count` bytes of `value` that are not in `skipped` end; there must be so many."""
    seen = accumulate(byte not in skipped for byte in value)
    return next(end for end, number in enumerate(seen, 1) if number == count)


# fmt: off
_IBAN_LENGTHS: Final = {
    b"AD": 24, b"AE": 23, b"AL": 28, b"AT": 20, b"AZ": 28, b"BA": 20, b"BE": 16, b"BG": 22, b"BH": 22,
    b"BR": 29, b"BY": 28, b"CH": 21, b"CR": 22, b"CY": 28, b"CZ": 24, b"DE": 22, b"DK": 18, b"DO": 28,
    b"EE": 20, b"EG": 29, b"ES": 24, b"FI": 18, b"FO": 18, b"FR": 27, b"GB": 22, b"GE": 22, b"GI": 23,
    b"GL": 18, b"GR": 27, b"GT": 28, b"HR": 21, b"HU": 28, b"IE": 22, b"IL": 23, b"IQ": 23, b"IS": 26,
    b"IT": 27, b"JO": 30, b"KW": 30, b"KZ": 20, b"LB": 28, b"LC": 32, b"LI": 21, b"LT": 20, b"LU": 20,
    b"LV": 21, b"LY": 25, b"MC": 27, b"MD": 24, b"ME": 22, b"MK": 19, b"MR": 27, b"MT": 31, b"MU": 30,
    b"NL": 18, b"NO": 15, b"PK": 24, b"PL": 28, b"PS": 29, b"PT": 25, b"QA": 29, b"RO": 24, b"RS": 22,
    b"SA": 24, b"SC": 31, b"SE": 24, b"SI": 19, b"SK": 24, b"SM": 27, b"SV": 28, b"TL": 23, b"TN": 24,
    b"TR": 26, b"UA": 29, b"VA": 22, b"VG": 24, b"XK": 20,
}
# fmt: on


def iban(value: bytes) -> int:
    """Accept a leading IBAN of its country's length whose mod 97 is 1."""
    plain = value.translate(None, _NOT_ALNUM).upper()
    length = _IBAN_LENGTHS.get(plain[:2], 0)
    if not length or len(plain) < length:
        return 0
    turned = plain[4:length] + plain[:4]
    number = int("".join(str(int(chr(byte), 36)) for byte in turned))
    return _end_after(value, length, b" -") if number % 97 == 1 else 0


# Country codes that nobody has, by their first digits; in North America no area begins with 0 or 1.
_NO_COUNTRY: Final = re.compile(
    rb"1[01]|21[04579]|259|28|38[48]|42[24-9]|69[3-9]|80[1-79]|83|85[14789]|87[1-79]|88[45789]|89|969|978|99[0179]"
)


def phone(value: bytes) -> int:
    """Accept 8 to 15 digits that are not one digit over and over, after a country code that there is."""
    digits = digits_of(value)
    if value[:1] == b"+" and _NO_COUNTRY.match(value.translate(None, _NOT_DIGITS)):
        return 0
    return len(value) if 8 <= len(digits) <= 15 and len(set(digits)) > 2 else 0


def _us_ssn(digits: list[int]) -> bool:
    number = int("".join(map(str, digits)))
    area, group, serial = number // 1_000_000, number // 10_000 % 100, number % 10_000
    return area not in {0, 666} and area < 900 and group != 0 and serial != 0


def _es_dni(value: bytes) -> bool:
    plain = value.replace(b"-", b"")
    number = plain[:-1].translate(bytes.maketrans(b"XYZ", b"012"))
    return plain[-1] == b"TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]


_CF_ODD_DIGITS: Final = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21)
_CF_ODD_LETTERS: Final = (*_CF_ODD_DIGITS, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_CF_ODD: Final = dict(zip(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", (*_CF_ODD_DIGITS, *_CF_ODD_LETTERS), strict=True))


def _it_fiscal_code(value: bytes) -> bool:
    code = value.upper()
    odd = sum(_CF_ODD[byte] for byte in code[0:15:2])
    even = sum(byte - 48 if byte in _DIGITS else byte - 65 for byte in code[1:15:2])
    return code[15] - 65 == (odd + even) % 26


def _fr_nir(value: bytes) -> bool:
    plain = value.replace(b" ", b"").replace(b"2A", b"19").replace(b"2B", b"18")
    return int(plain[-2:]) == 97 - int(plain[:-2]) % 97


def _de_tax_id(digits: list[int]) -> bool:
    product = 10
    for digit in digits[:-1]:
        total = (digit + product) % 10 or 10
        product = 2 * total % 11
    repeats = len(digits[:-1]) - len(set(digits[:-1]))
    return repeats in {1, 2} and (11 - product) % 10 == digits[-1]


def _be_nrn(digits: list[int]) -> bool:
    number, check = int("".join(map(str, digits[:9]))), digits[9] * 10 + digits[10]
    return check in {97 - number % 97, 97 - (2_000_000_000 + number) % 97}


def _br_cpf(digits: list[int]) -> bool:
    first = weighted(digits, (10, 9, 8, 7, 6, 5, 4, 3, 2)) * 10 % 11 % 10
    second = weighted(digits, (11, 10, 9, 8, 7, 6, 5, 4, 3, 2)) * 10 % 11 % 10
    return len(set(digits)) > 1 and digits[9:] == [first, second]


def _mx_curp(value: bytes) -> bool:
    order = "0123456789ABCDEFGHIJKLMN\N{LATIN CAPITAL LETTER N WITH TILDE}OPQRSTUVWXYZ"
    total = sum(order.index(chr(byte)) * (18 - index) for index, byte in enumerate(value[:17]))
    return (10 - total % 10) % 10 == value[17] - 48


def _cl_rut(value: bytes) -> bool:
    digits = digits_of(value[:-1])
    total = sum(digit * (2 + index % 6) for index, digit in enumerate(reversed(digits)))
    return value[-1:].upper() == (b"0", b"K", *(b"%d" % n for n in range(9, 0, -1)))[total % 11]


def _in_aadhaar(digits: list[int]) -> bool:
    # Verhoeff's check sum: digits are the elements of the dihedral group of the pentagon, which are five turns, and
    # five turns of its mirror image. Each place permutes its digit once more than the place to its right.
    rows = [list(range(10))]
    for _ in range(7):
        rows.append([(1, 5, 7, 6, 2, 8, 3, 0, 9, 4)[item] for item in rows[-1]])
    check = 0
    for index, digit in enumerate(reversed(digits)):
        right = rows[index % 8][digit]
        turn = (check + right) % 5 if check < 5 else (check - right) % 5
        check = turn if (check < 5) == (right < 5) else turn + 5
    return check == 0


def _cn_resident_id(value: bytes) -> bool:
    total = weighted(digits_of(value[:17]), (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2))
    return value[17:].upper() == b"10X98765432"[total % 11 : total % 11 + 1]


def _sg_nric(value: bytes) -> bool:
    total = weighted(digits_of(value), (2, 7, 6, 5, 4, 3, 2)) + (4 if value[0] in b"TG" else 0)
    letters = b"JZIHGFEDCBA" if value[0] in b"ST" else b"XWUTRQPNMLK"
    return value[-1] == letters[total % 11]


def _has_digit(value: bytes) -> bool:
    return len(value.translate(None, _DIGIT_BYTES)) < len(value)


def _letters_and_digits(value: bytes) -> bool:
    return _has_digit(value) and value.swapcase() != value


# Code and templates name a password: `settings.db_password`, `@DB_PASSWORD`, `new_password2`, `/a/path`, `check:`.
_NAMING: Final = (
    rb"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)+",
    rb"[@$%:#]?[A-Z][A-Z0-9]*_[A-Z0-9_]+%?|[@$%:#][A-Za-z_]\w*(?:[._]\w+)+",
    rb"(?i)[\w-]*(?:passw|pwd)[a-z_-]*\d{0,2}",
    # A type of Ruby, a variable of Vim, an object identifier.
    # A label that ends in a colon, in any language; a function of Erlang; what a shell puts for a set variable.
    rb"[^\d\s]*(?:[:=]|\xef\xbc\x9a)|[a-z_]+/\d|\+[a-z-]+|[A-Z_]+\]",
    rb"(?:id|type|src|source|name|env|file|key)=[\w.,=-]*",
    rb"[A-Za-z]+\?|[a-z]:[A-Za-z_.]+|[a-z]+=@[A-Za-z]+|[@$%:#][A-Z]+|\w+\$\$|\d+(?:\.\d+){2,}",
    # The end of a quote and what follows it in PHP; a member of a variable.
    rb"\.[ ]?\$\w.*|\$\w+(?:->|\[).*",
    rb"[\w.-]*[:=]|[:=].*|[~.]?/.*|\+[\w.]+|![a-z]+|[\w.]+![rsa]|.*%[sdr]|.*\b(?:this|self)\..*",
)
_LATIN1: Final = re2.Options()
_LATIN1.encoding = re2.Options.Encoding.LATIN1
# RE2, because an agent brings the texts.
_NAMES_PASSWORD: Final = re2.compile(b"|".join(b"(?:%b)" % regex for regex in _NAMING), _LATIN1)


def _password_like(value: bytes) -> bool:
    # A digit, or a sign that names have not: words of other languages have neither.
    if not value.translate(None, _NAME).translate(None, _NOT_ASCII):
        return False
    if value.count(b"/") >= 2 and surprise(value) < _LEAST_SURPRISE:
        return False  # a path
    return _NAMES_PASSWORD.fullmatch(value) is None


def _random_looking(value: bytes) -> bool:
    """Accept what nobody would write as a name, a path, a version or a date."""
    if _is_class_name(value):
        return False
    if _has_hex(value, 16):
        return True
    if not value.translate(None, _HEX_SIGNS):
        # Fifteen digits in a row are a number that means nothing; fewer are a time, a count or a telephone.
        return len(value) >= 15 and len(set(value)) > 5 and value.isdigit()
    # The fewer the characters, the more often a name surprises as much as a random text does.
    bits = surprise(value)
    digits = len(value) - len(value.translate(None, _DIGIT_BYTES))
    if not digits:
        return bits >= (6.5 if len(value) < 16 else 5.9)
    if len(value) < 14:
        return bits >= 6.0
    return bits >= _LEAST_SURPRISE or (digits >= 3 and bits >= 4.7)


def _surely_random(value: bytes) -> bool:
    """Accept what looks random even beside a name that does not say secret."""
    if _is_class_name(value):
        return False
    if not value.translate(None, _HEX_SIGNS):
        return b"-" not in value and _has_hex(value, 32)
    digits = len(value) - len(value.translate(None, _DIGIT_BYTES))
    # Small letters and digits surprise less than letters of both cases do, and so do names with digits in them.
    least = 5.0 if digits >= 4 and value == value.lower() else 5.9
    return _has_hex(value, 32) or (_letters_and_digits(value) and surprise(value) >= least)


# Capitalised words; and what ends a name, never by chance.
_CAMEL_WORD: Final = re.compile(rb"[A-Z][a-z]{2,}|[a-z]{3,}|[A-Z]{3,}(?![a-z])")
_ENDS_AS_NAME: Final = re.compile(rb"[a-z0-9](?:Key|Token|Secret|Password|Credential)s?$")
_NAME_SURPRISE: Final = 6.4


def _is_class_name(value: bytes) -> bool:
    """Return whether `value` is written as code names things: `OAuth2WebServerFlow`, `V2ApiKey`, `::create_key`."""
    if value[:1] == b":":
        return True
    if not value.isalnum() or value.islower() or value.isupper() or len(value) > _LONGEST_NAME:
        return False
    if _ENDS_AS_NAME.search(value):
        return True
    return len(b"".join(_CAMEL_WORD.findall(value))) >= 0.8 * len(value) and surprise(value) < _NAME_SURPRISE


def _random_base64(value: bytes) -> bool:
    return value.upper() != value != value.lower() and _has_digit(value) and surprise(value) >= 6.0


def _has_hex(value: bytes, least: int) -> bool:
    """Return whether `value` is a UUID, or has `least` hexadecimal digits in a row, some of them letters."""
    if len(value) == 36 and value.count(b"-") == 4 and not value.translate(None, _HEX_SIGNS):
        return True
    runs = _HEX_RUNS[least].findall(value) if len(value) >= least else ()
    return any(len(set(run)) > 6 and _letters_and_digits(run) for run in runs)


_HEX_SIGNS: Final = b"0123456789abcdefABCDEF-"
_HEX_RUNS: Final = {least: re.compile(rb"[0-9A-Fa-f]{%d,}" % least) for least in (16, 32)}


def _basic_credentials(value: bytes) -> bool:
    padded = value.rstrip(b"=").translate(bytes.maketrans(b"-_", b"+/"))
    try:
        plain = base64.b64decode(padded + b"=" * (-len(padded) % 4))
    except (binascii.Error, ValueError):
        return False
    name, colon, password = plain.partition(b":")
    return bool(colon and password) and name.isascii() and plain.isascii() and plain.decode().isprintable()


def _base58check(value: bytes) -> bool:
    alphabet = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    number = 0
    for byte in value:
        number = number * 58 + alphabet.index(byte)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    digest = hashlib.sha256(hashlib.sha256(raw[:-4]).digest()).digest()
    return len(raw) in {37, 38} and digest[:4] == raw[-4:]


_ON_DIGITS: Final = (_be_nrn, _br_cpf, _de_tax_id, _in_aadhaar, _us_ssn)
_ON_TEXT: Final = (
    *(_base58check, _basic_credentials, _cl_rut, _cn_resident_id, _es_dni, _fr_nir, _has_digit, _it_fiscal_code),
    *(_letters_and_digits, _mx_curp, _password_like, _random_base64, _random_looking, _sg_nric, _surely_random),
)
# Checks by the names that `detectors.yaml` uses.
VALIDATORS: Final[dict[str, Validator]] = {
    "card": card,
    "long_card": long_card,
    "iban": iban,
    "phone": phone,
    **{check.__name__.removeprefix("_"): _on_digits(check) for check in _ON_DIGITS},
    "au_tfn": _divisible(11, (1, 4, 3, 7, 5, 8, 6, 9, 10)),
    "ch_ahv": _divisible(10, (1, 3) * 6 + (1,)),
    "nl_bsn": _divisible(11, (9, 8, 7, 6, 5, 4, 3, 2, -1)),
    "no_fnr": _divisible(11, (3, 7, 6, 1, 8, 9, 4, 5, 2, 1), (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)),
    "pl_pesel": _divisible(10, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)),
    # The weights add up to 55, so ten times the same digit would pass.
    "uk_nhs": _on_digits(lambda d: len(set(d)) > 1 and weighted(d, (10, 9, 8, 7, 6, 5, 4, 3, 2, 1)) % 11 == 0),
    "kr_rrn": _on_digits(lambda d: (11 - weighted(d, (2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)) % 11) % 10 == d[12]),
    "tr_identity": _on_digits(lambda d: d[9] == (7 * sum(d[0:9:2]) - sum(d[1:8:2])) % 10 and d[10] == sum(d[:10]) % 10),
    "ca_sin": _on_digits(lambda digits: digits[0] not in {0, 8} and luhn(digits)),
    "se_personnummer": _on_digits(lambda digits: luhn(digits[-10:])),
    **{check.__name__.removeprefix("_"): _whole(check) for check in _ON_TEXT},
    "fi_hetu": _whole(lambda text: text[10] == b"0123456789ABCDEFHJKLMNPRSTUVWXY"[int(text[:6] + text[7:10]) % 31]),
    "seed_phrase": seed_phrase,
    "base58_address": _whole(base58_address),
    "bech32": _whole(bech32),
    # Nearly all of one digit is nobody's address or key.
    "not_one_digit": _whole(lambda text: len(set(text.lower())) > 6),
    "mixed_case_digits": _whole(lambda text: text.upper() != text != text.lower() and _has_digit(text)),
}
