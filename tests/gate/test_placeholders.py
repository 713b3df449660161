"""Placeholders are found where they may stand, and a value is written there as the place asks."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from urllib.parse import parse_qs, unquote

import pytest

from proxy.core.vault import Place, Secret
from proxy.gate import placeholders
from proxy.gate.placeholders import (
    fill_body,
    fill_headers,
    fill_target,
    fill_value,
    fits_header,
    is_marked,
    is_text_body,
    spots,
    strings,
)

HELD = "ilkph_key_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
VALUE = 'a"b\\c d/e?f&g=h+i%j#k;é'
VALUES = {HELD: Secret(VALUE.encode())}


def login(password: str, *, pad: bool = True, urlsafe: bool = False) -> str:
    encoded = (base64.urlsafe_b64encode if urlsafe else base64.b64encode)(f"me:{password}".encode()).decode()
    return encoded if pad else encoded.rstrip("=")


def test_each_place_of_a_head_is_looked_at() -> None:
    headers = [
        ("Authorization", f"Bearer {HELD}"),
        ("authorization", f"basic {login(HELD, pad=False)}"),
        ("Authorization", f"Basic {login(HELD + '>>>???', urlsafe=True)}"),
        ("Host", HELD),
        ("Mcp-Param-K", HELD),
        ("X", "nothing"),
    ]
    found = list(spots(f"/a/{HELD}?k={HELD}", headers))
    places = [(spot.place, spot.is_raw) for spot in found]
    header = Place.HEADER
    assert places == [(Place.PATH, False), (Place.QUERY, False), (header, True), (header, False), (header, False)]
    assert all(HELD in spot.text for spot in found)
    assert list(spots("/a?b", [("X", "y"), ("Authorization", "Basic !")])) == []


@pytest.mark.parametrize(
    ("field", "marked"),
    [
        ((b"x", HELD.encode()), True),
        ((b"authorization", f"BASIC {login(HELD)}".encode()), True),
        ((b"authorization", f"Basic {login('x')}".encode()), False),
        ((b"authorization", b"Basic \xff\xff"), False),
        ((b"x", b"y"), False),
    ],
)
def test_a_head_that_may_hold_one_is_told_from_others(field: tuple[bytes, bytes], marked: bool) -> None:
    assert is_marked([(b"a", b"b"), field]) is marked


def test_values_stand_in_headers_as_they_are_and_in_logins_encoded_anew() -> None:
    fields = [
        (b"Authorization", f"Bearer {HELD}".encode()),
        (b"Cookie", f"a={HELD}; b={HELD}".encode()),
        (b"authorization", f"Basic {login(HELD)}".encode()),
        (b"Host", HELD.encode()),
        (b"X", b"\xff"),
    ]
    filled = fill_headers(fields, VALUES, {})
    raw = VALUE.encode("latin-1")
    assert filled[0] == (b"Authorization", b"Bearer " + raw)
    assert filled[1] == (b"Cookie", b"a=" + raw + b"; b=" + raw)
    assert base64.b64decode(filled[2][1].removeprefix(b"Basic ")).decode() == f"me:{VALUE}"
    assert filled[3:] == (fields[3], fields[4])


def test_a_mirrored_header_follows_its_argument_alone() -> None:
    fields = [(b"Mcp-Param-K", HELD.encode()), (b"mcp-param-l", f"=?base64?{login(HELD)}?=".encode())]
    assert fill_headers(fields, VALUES, {}) == tuple(fields)
    (_, one), (_, other) = fill_headers(fields, {}, VALUES)
    assert [base64.b64decode(each[9:-2]).decode() for each in (one, other)] == [VALUE, f"me:{VALUE}"]


def test_in_a_path_slashes_stay_and_all_else_that_means_something_is_encoded() -> None:
    target = fill_target(f"/x/{HELD}/y?k={HELD}&l=1", VALUES)
    path, _, query = target.partition("?")
    assert "#" not in target
    assert unquote(path) == f"/x/{VALUE}/y"
    assert path.count("/") == f"/x/{VALUE}/y".count("/")
    assert parse_qs(query) == {"k": [VALUE], "l": ["1"]}


def test_in_json_strings_are_filled_and_keys_and_all_else_stay() -> None:
    body = f'{{ "a" : "x {HELD}\\u0041" , "{HELD}" :1.0, "b{HELD}"\n:[ "{HELD}", "{HELD}{HELD}" ], "c":"\\"{HELD}"}}'
    filled = fill_body(body.encode(), "application/json", VALUES).decode()
    assert json.loads(filled) == {
        "a": f"x {VALUE}A",
        HELD: 1.0,
        f"b{HELD}": [VALUE, VALUE + VALUE],
        "c": f'"{VALUE}',
    }
    assert filled.startswith('{ "a" : "x ')
    assert '\\u0041" , ' in filled


def test_json_by_another_name_is_json() -> None:
    body = json.dumps({"k": HELD}).encode()
    for kind in ("", "text/plain", "application/problem+json"):
        assert json.loads(fill_body(body, kind, VALUES)) == {"k": VALUE}


def test_forms_and_texts() -> None:
    form = fill_body(f"a=1&k={HELD}".encode(), "application/x-www-form-urlencoded", VALUES).decode()
    assert parse_qs(form) == {"a": ["1"], "k": [VALUE]}
    assert fill_body(b"\xff " + HELD.encode(), "multipart/form-data", VALUES) == b"\xff " + VALUE.encode()
    assert fill_body(b"x", "", {}) == b"x"


@pytest.mark.parametrize(
    ("kind", "body", "is_text"),
    [
        ("application/json", b"\xff", True),
        ("multipart/form-data", b"\xff", True),
        ("", b"abc", True),
        ("application/grpc", b"\x00\x00\x00\x00\x01\xff", False),
        ("application/octet-stream", b"abc", False),
        ("application/x-thing", b"abc", True),
    ],
)
def test_a_body_with_lengths_in_it_is_no_text(kind: str, body: bytes, is_text: bool) -> None:
    assert is_text_body(kind, body) is is_text


def test_of_a_value_of_json_the_strings_are_filled_and_the_keys_are_not() -> None:
    value = {HELD: [HELD, 1, None, {"a": f"x{HELD}"}]}
    assert fill_value(value, VALUES) == {HELD: [VALUE, 1, None, {"a": f"x{VALUE}"}]}
    assert sorted(strings(value)) == sorted([HELD, f"x{HELD}"])


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (b"abc def", True),
        ("\xe9".encode(), True),
        ("€".encode(), False),
        (b"\xff", False),
        (b"a\tb", False),
        (b"a\x7f", False),
        (b" a", False),
        (b"a ", False),
        (b"a\r\nb", False),
    ],
)
def test_what_may_stand_in_a_header(value: bytes, fits: bool) -> None:
    assert fits_header(value) is fits


def test_lines_of_json_and_xml_are_escaped_as_they_ask() -> None:
    lines = fill_body(f'{{"a": "{HELD}"}}\n{{"{HELD}": 1}}\n'.encode(), "application/x-ndjson", VALUES).splitlines()
    assert [json.loads(line) for line in lines] == [{"a": VALUE}, {HELD: 1}]
    page = f"<a k='{HELD}'>{HELD}<b><![CDATA[ {HELD} ]]></b></a>"
    top = ET.fromstring(fill_body(page.encode(), "application/soap+xml", VALUES))
    assert (top.get("k"), top.text, top[0].text) == (VALUE, VALUE, f" {VALUE} ")


def test_a_string_of_many_placeholders_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    class Rest:
        def match(self, body: bytes, at: int) -> re.Match[bytes] | None:
            read.append(at)
            return found.match(body, at)

    found = placeholders._REST_OF_STRING
    monkeypatch.setattr(placeholders, "_REST_OF_STRING", Rest())
    body = json.dumps([" ".join([HELD] * 50), {HELD: HELD}])
    assert json.loads(fill_body(body.encode(), "application/json", VALUES)) == [" ".join([VALUE] * 50), {HELD: VALUE}]
    assert len(read) == 3
