"""A value is found in every usual spelling, and its beginning at the end of a text is told."""

from __future__ import annotations

import csv
import html
import io
import json
import quopri
import random
import shlex
import string
from collections.abc import Callable
from urllib.parse import quote, quote_plus

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


def _row(text: str) -> str:
    row = io.StringIO()
    csv.writer(row).writerow([text])
    return row.getvalue()


WRITERS: dict[str, Callable[[str], str]] = {
    "JSON in a page": lambda text: html.escape(json.dumps(text)),
    "PHP's JSON": lambda text: json.dumps(text).replace("/", "\\/"),
    "form": quote_plus,
    "form in a query": lambda text: quote(quote_plus(text)),
    "Latin-1 in a query": lambda text: quote(text, safe="", encoding="latin-1"),
    "quoted-printable": lambda text: quopri.encodestring(text.encode()).decode(),
    "CSV": _row,
    "shell": shlex.quote,
    "shell, with backslashes": lambda text: text.replace("'", "'\\''"),
    "SQL": lambda text: text.replace("'", "''"),
    "Python's bytes": lambda text: repr(text.encode()),
    "octal": lambda text: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "code points": lambda text: "".join(f"\\u{{{ord(char):x}}}" for char in text),
    "names of HTML": lambda text: text.replace("_", "&lowbar;").replace("=", "&equals;").replace(":", "&colon;"),
    "hex with dashes": lambda text: text.encode().hex("-"),
}
"""How other programs write a text."""


@pytest.mark.parametrize("value", ['it\'s "one" of_my=pass: words/2', "Qm9=+/x_y:z==", "pässwörtli ß9"])
def test_what_other_programs_write_is_found_and_its_beginning_is_held(value: str) -> None:
    forms = ValueForms(value.encode())
    for name, write in WRITERS.items():
        data = b"x> " + write(value).encode() + b" <y"
        (span,) = forms.spans(data)
        assert len(data) - (span[1] - span[0]) <= len(b"x> <y") + 24, name
        for cut in range(span[0] + 1, span[1]):
            assert forms.beginning(data[:cut]) <= span[0], (name, data[span[0] : cut])


def test_a_long_document_is_found_in_json_of_json_and_in_pages() -> None:
    value = json.dumps({"type": "service_account", "key": "-----BEGIN/\n" + "ab+/" * LONGEST})
    forms = ValueForms(value.encode())
    twice = json.dumps(json.dumps({"text": value}))
    for written in (twice, html.escape(value), html.escape(json.dumps(value)), json.dumps(value).replace("/", "\\/")):
        (span,) = forms.spans(written.encode())
        assert len(written) - (span[1] - span[0]) <= 40
        for cut in (span[0] + 1, span[0] + 20, span[1] - 1):
            assert forms.beginning(written[:cut].encode()) <= span[0]
