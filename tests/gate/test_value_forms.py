"""A value is found in every usual spelling, and its beginning at the end of a text is told."""

from __future__ import annotations

import random
import string

import pytest

from proxy.gate.value_forms import LONGEST, NESTED, ValueForms
from tests.servers.reflecting import FORMS

VALUE = 'sk-live-Ab"c/d+1\\x7890&z<e>ü€😀'
CHANCE = random.Random(1)
LETTERS = string.ascii_letters + string.digits + "/+"
LONG, LONGER = ("".join(CHANCE.choices(LETTERS, k=length)) for length in (3 * NESTED, LONGEST + 100))
CASES = [
    *((form, VALUE) for form in FORMS if form not in ("percent of all", "escapes")),
    *((form, VALUE[:26]) for form in FORMS),
    *((form, LONG) for form in FORMS),
    *((form, LONGER) for form in ("raw", "json", "percent", "base64", "base64 inside", "hex", "HEX")),
]


@pytest.fixture(scope="module")
def made() -> dict[str, ValueForms]:
    return {value: ValueForms(value.encode()) for value in (VALUE, VALUE[:26], LONG, LONGER)}


@pytest.mark.parametrize(("form", "value"), CASES)
def test_each_form_is_found_whole(made: dict[str, ValueForms], form: str, value: str) -> None:
    written = FORMS[form](value)
    data = b'{"before": ' + written + b" after"
    (span,) = made[value].spans(data)
    # Of Base64, the characters at the edges are of other bytes, too.
    assert 0 <= span[0] - len(b'{"before": ') <= 80
    left = data[: span[0]] + data[span[1] :]
    assert len(left) <= len(data) - len(written) + (80 if "64" in form else 40)


@pytest.mark.parametrize(("form", "value"), CASES)
def test_a_beginning_is_held_wherever_it_is_cut(made: dict[str, ValueForms], form: str, value: str) -> None:
    written = b"x " + FORMS[form](value) + b" y"
    (span,) = made[value].spans(written)
    for cut in range(span[0] + 1, span[1]):
        # Zero bytes of UTF-16 stand before and after each character; those at the edges are of no value.
        assert made[value].beginning(written[:cut]) <= span[0], written[span[0] : cut]


def test_what_is_no_value_is_let_be(made: dict[str, ValueForms]) -> None:
    for value, forms in made.items():
        for other in (value[:-1], value[1:], value.swapcase(), "", "data: {}\n\n"):
            assert list(forms.spans(other.encode())) == []
        assert forms.beginning(b"") == 0
        assert forms.beginning(b"hello world\n\n") == len(b"hello world\n\n")


def test_bytes_that_are_no_text_are_found() -> None:
    value = b"\xff\xfe-secret-\x80\x81"
    forms = ValueForms(value)
    assert list(forms.spans(b"a " + value + b" b")) == [(2, 2 + len(value))]
    assert list(forms.spans(b"a " + value.hex().encode())) == [(2, 2 + 2 * len(value))]


def test_several_values_in_a_text_are_all_found(made: dict[str, ValueForms]) -> None:
    assert len(list(made[VALUE].spans(VALUE.encode() * 3))) == 3
