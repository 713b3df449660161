"""Each validator accepts a good value, and refuses it with one digit or letter changed."""

from __future__ import annotations

import pytest

from proxy.redact.validators import VALIDATORS, digits_of, luhn, weighted

GOOD = {
    "au_tfn": b"123456782",
    "be_nrn": b"85.07.30-033.28",
    "br_cpf": b"529.982.247-25",
    "ca_sin": b"130692544",
    "card": b"4111 1111 1111 1111",
    "ch_ahv": b"756.9217.0769.85",
    "cl_rut": b"12.345.678-5",
    "cn_resident_id": b"11010519491231002X",
    "de_tax_id": b"86095742719",
    "es_dni": b"12345678Z",
    "fi_hetu": b"131052-308T",
    "fr_nir": b"255081416802538",
    "iban": b"DE89 3704 0044 0532 0130 00",
    "in_aadhaar": b"234123412346",
    "it_fiscal_code": b"RSSMRA85T10A562S",
    "kr_rrn": b"900101-1234568",
    "mx_curp": b"BOXW310820HNERXN09",
    "nl_bsn": b"111222333",
    "no_fnr": b"01010750160",
    "pl_pesel": b"44051401359",
    "se_personnummer": b"811228-9874",
    "sg_nric": b"S1234567D",
    "tr_identity": b"10000000146",
    "uk_nhs": b"9434765919",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_number_is_accepted_whole(name: str):
    assert VALIDATORS[name](GOOD[name]) == len(GOOD[name])


@pytest.mark.parametrize("name", GOOD)
def test_a_number_with_another_digit_is_refused(name: str):
    value = GOOD[name]
    at = max(index for index, byte in enumerate(value[:-1]) if byte in b"0123456789")
    others = [value[:at] + b"%d" % digit + value[at + 1 :] for digit in range(10) if digit != value[at] - 48]
    assert [VALIDATORS[name](other) for other in others].count(0) >= 8


@pytest.mark.parametrize("name", ["au_tfn", "br_cpf", "nl_bsn", "no_fnr", "pl_pesel", "uk_nhs"])
def test_zeros_are_no_number(name: str):
    assert VALIDATORS[name](b"0" * len(digits_of(GOOD[name]))) == 0


@pytest.mark.parametrize(
    ("value", "length"),
    [
        (b"4111 1111 1111 1111 2", 19),
        (b"378282246310005", 15),
        (b"4111 1111 1111 1112", 0),
        (b"0000000000000000", 0),
        (b"4111111111111111234", 0),
    ],
)
def test_a_card_is_the_longest_leading_number_of_its_brand(value: bytes, length: int):
    assert VALIDATORS["card"](value) == length


@pytest.mark.parametrize(
    ("value", "length"),
    [(b"DE89370400440532013000X", 22), (b"DE8937040044053201300", 0), (b"ZZ89370400440532013000", 0)],
)
def test_an_iban_has_the_length_of_its_country(value: bytes, length: int):
    assert VALIDATORS["iban"](value) == length


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("us_ssn", b"123-45-6789", True),
        ("us_ssn", b"666-45-6789", False),
        ("us_ssn", b"900-45-6789", False),
        ("us_ssn", b"123-00-6789", False),
        ("phone", b"+44 20 7946 0958", True),
        ("phone", b"11111111", False),
        ("phone", b"1234567", False),
        ("has_digit", b"abc1", True),
        ("has_digit", b"abc", False),
        ("letters_and_digits", b"a1", True),
        ("letters_and_digits", b"11", False),
        ("mixed_case_digits", b"aB1", True),
        ("mixed_case_digits", b"ab1", False),
        ("password_like", b"hunter2!", True),
        ("password_like", b"settings.db_password", False),
        ("random_looking", b"x7Kd92mQ4z", True),
        ("random_looking", b"application-2", False),
        ("random_looking", b"Zf3D0LXCM3EIMbgJpUNn", True),
        ("random_looking", b"qkzvwjxhqpwzvkqx", True),
        ("random_looking", b"prod_" + b"3f9a8c1b" * 4, True),
        ("random_looking", b"7f3c2a90-5b1e-4c7d-9a42-0d6e8f1b2c35", True),
        ("random_looking", b"873597155664137856", True),
        ("random_looking", b"20240131120000", False),
        ("random_looking", b"Keyword.Pseudo", False),
        ("random_looking", b"settings.DATABASE_TOKEN_2", False),
        ("random_looking", b"0000000000000000000000", False),
        ("surely_random", b"osh0kjinsc2atoaqntoy1hdjppg54449", True),
        ("surely_random", b"3f9a8c1b5d7e0246" * 2, True),
        ("surely_random", b"7f3c2a90-5b1e-4c7d-9a42-0d6e8f1b2c35", False),
        ("surely_random", b"reports/2024/summary-final.pdf", False),
        ("card", b"6250000000000000005", False),
        ("long_card", b"6250000000000000005", True),
        ("random_base64", b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYzQ9dLhB3Tn", True),
        ("random_base64", b"com/AWSEC2/latest/UserGuide/EBSSnapshots", False),
        ("password_like", b"new_password2", False),
        ("password_like", b"form1.errors", False),
        ("password_like", b"@DB_PASSWORD_1", False),
        ("password_like", b"projects/one/secrets/two/versions/2", False),
        ("password_like", "пароль-слово".encode(), False),
        ("password_like", b"Qx/Zk9vW/pLrTw", True),
        ("basic_credentials", b"dXNlcjpwYXNz", True),
        ("basic_credentials", b"dXNlcjo=", False),
        ("basic_credentials", b"!", False),
        ("base58check", b"5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ", True),
        ("base58check", b"5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTK", False),
    ],
)
def test_other_checks_accept_and_refuse(name: str, value: bytes, accepted: bool):
    assert bool(VALIDATORS[name](value)) is accepted


def test_every_validator_is_covered_here():
    others = {
        *("us_ssn", "phone", "has_digit", "letters_and_digits", "mixed_case_digits", "password_like"),
        *("random_looking", "random_base64", "long_card", "surely_random", "basic_credentials", "base58check"),
        *("seed_phrase", "base58_address", "bech32", "not_one_digit"),  # in test_wallets.py
    }
    assert {*GOOD} | others == {*VALIDATORS}


@pytest.mark.parametrize(
    ("digits", "valid"), [([7, 9, 9, 2, 7, 3, 9, 8, 7, 1, 3], True), ([7, 9, 9, 2, 7, 3, 9, 8, 7, 1, 4], False)]
)
def test_luhn_checks_the_last_digit(digits: list[int], valid: bool):
    assert luhn(digits) is valid


def test_a_weighted_sum_ends_with_the_shorter_list():
    assert weighted([1, 2, 3], (10, 1)) == 12
