"""The first look reads the very text that the whole way reads, and never calls something nothing."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.redact import Masker, builtin
from proxy.redact.decode import GROWTH, SLACK
from proxy.redact.json_text import Document, ScanText
from proxy.redact.mask import _Masking
from proxy.redact.prefilter import SMALL, is_surely_clean, scan_text
from tests.redact import labelled

KEY = "AKIA" + "Z7QJ3LMNB4KXTW2V"
MASKER = Masker(b"k" * 32)
ALL = MASKER.catalog.select(("secrets", "pii"))
PLAIN = [
    {},
    "hello",
    {"name": "get_weather", "arguments": {"city": "Paris", "path": "/workspace/a/long/path/notes.md", "days": 3}},
    {"content": [{"type": "text", "text": "fine " * 200}, {"type": "text", "text": "more"}], "isError": False},
    [["a", "b"], ["c", ["d"]], None, True, 1234567, 1.5e9],
    {"rate": "100%", "and": "R&D", "regex": "\\d+ \\x4", "path": "C:\\\\users\\\\x"},
    {"text": "caf\u00e9 \u2014 \U0001f600", "beyond": "\u00e9" * 600},
    {"notes": [f"see /srv/projects/atlas/src/page_{number}.md" for number in range(40)], "size": 12345678},
]
SAMPLES = [sample.text for sample in labelled.load() if len(sample.text) < 200]
PLAINLY = ("", "a", "Paris", KEY, KEY[:9], "4111111111111111", "text", "2.0")
ODDLY = ("\u00e9", "\u200b", "\ud800", "%", "\\n", "\x00")
PATHS = (
    "/srv/projects/atlas/src/reading",
    "test_what_is_plain_is_told",
    "https://docs.example.com/en/stable/a_long_page",
)


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


ENCODINGS: tuple[Callable[[bytes], str], ...] = (
    lambda data: data.decode(errors="replace"),
    in_base64,
    lambda data: in_base64(b"\xfe\xca\xef\xfe\x9a\xe8" + data + b"\x9a\xe8"),
    lambda data: "/a/" + base64.urlsafe_b64encode(data).decode().rstrip("="),
    lambda data: "\n".join(textwrap.wrap(in_base64(data * 3), 64)),
    lambda data: in_base64(in_base64(data).encode()),
    lambda data: in_base64(data.decode(errors="replace").encode("utf-16-le")),
    lambda data: in_base64("".join(f"%{byte:02x}" for byte in data).encode()),
    lambda data: base64.b32encode(data).decode().lower(),
    bytes.hex,
    lambda data: data.hex(" "),
    lambda data: "".join(f"%{byte:02X}" for byte in data),
    lambda data: "".join(f"\\x{byte:02x}" for byte in data),
    lambda data: "".join(f"\\u00{byte:02x}" for byte in data),
    lambda data: "".join(f"&#x{byte:02x};" for byte in data),
)
ENCODED = st.builds(
    lambda text, start, encode: encode(text[start:].encode()),
    st.sampled_from([*SAMPLES, KEY]),
    st.sampled_from((0, 0, 1, 3, 9)),
    st.sampled_from(ENCODINGS),
)
PIECES = st.sampled_from((*PLAINLY, *ODDLY, *PATHS)) | ENCODED
STRINGS = st.lists(PIECES, max_size=3).map("".join)
HALVES = st.builds(lambda text, at: [text[:at], text[at:]], ENCODED, st.integers(1, 40))
NUMBERS = st.integers(-(10**20), 10**20) | st.sampled_from((4111111111111111, 1.5e9))
VALUES = st.recursive(
    STRINGS | HALVES | st.none() | st.booleans() | NUMBERS | st.lists(st.integers(32, 126), min_size=13),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS | st.just("type"), inner, max_size=4),
    max_leaves=8,
)


def whole_text(value: Any) -> bytes:
    document = Document(value)
    return ScanText(document, [leaf.text.encode("utf-8", "surrogatepass") for leaf in document.leaves]).data


@pytest.mark.parametrize("value", PLAIN)
def test_plain_values_are_told_at_a_glance(value: Any):
    assert is_surely_clean(value, ALL, MASKER._scanner, (GROWTH, SLACK))
    assert MASKER.mask(value, ("secrets", "pii")) == (value, ())


@given(VALUES)
def test_what_is_looked_at_is_what_the_whole_way_looks_at(value: Any):
    assert scan_text(value) in {None, whole_text(value)}


@settings(max_examples=150)
@given(VALUES)
def test_nothing_that_the_whole_way_finds_is_called_nothing(value: Any):
    if is_surely_clean(value, ALL, MASKER._scanner, (GROWTH, SLACK)):
        assert _Masking(MASKER, value, ALL).run() == (value, ())


@pytest.mark.parametrize(
    "value",
    [
        {"key": KEY},
        {"a": KEY[:9], "b": KEY[9:]},
        {"a": base64.b64encode(KEY.encode()).decode()},
        {"a": base64.b64encode(base64.b64encode(KEY.encode())).decode()},
        {"a": KEY.encode().hex()},
        {"a": [*KEY.encode()]},
        {"a": "x" * SMALL + KEY},
        {"a": "%41" + KEY[1:]},
        10**5000,
    ],
    ids=range(9),
)
def test_what_may_hold_something_goes_the_whole_way(value: Any):
    assert not is_surely_clean(value, ALL, MASKER._scanner, (GROWTH, SLACK))
    assert MASKER.mask(value, ("secrets", "pii"))[1]


def test_a_part_by_itself_is_looked_at_too():
    """What is split over the first strings of a part has something else before it in the whole."""
    part = {"a": KEY[:9], "b": KEY[9:]}
    whole = {"name": "get_weather", "arguments": part}
    assert MASKER.mask(part, ("secrets",))[1]
    assert not MASKER.is_clean(whole, part, ("secrets",))
    assert MASKER.is_clean({"name": "x", "arguments": {"a": "b"}}, {"a": "b"}, ("secrets",))


def test_bait_beside_a_part_does_not_hide_what_is_in_it():
    part = {"n": f";4000 0000 0001 {'4111' + ' 1111' * 3};"}
    value = {"_meta": {"x": "4000 " * 6000}, "name": "t", "arguments": part}
    assert MASKER.mask(value, ("pii",))[1]
    assert MASKER.mask(part, ("pii",))[1]
    assert not MASKER.is_clean(value, part, ("pii",))


@settings(max_examples=60)
@given(VALUES, VALUES)
def test_what_is_clean_as_a_whole_is_clean_in_part(name: Any, part: Any):
    value = {"name": name, "arguments": part, "_meta": name}
    if MASKER.is_clean(value, part, ("secrets", "pii")):
        assert _Masking(MASKER, value, ALL).run() == (value, ())
        assert _Masking(MASKER, part, ALL).run() == (part, ())


def test_what_is_noise_to_built_in_detectors_is_decoded_for_another():
    value = {"path": in_base64(b"\xfe\xca\xef\xfe\x9a\xe8\xb5\xb6\xf9\xfa\xe1Q7~\xca\xef\xfe\x9a")}
    own = {"id": "custom.short", "description": "Three characters", "regex": "Q7~"}
    masker = Masker(b"k" * 32, builtin().extended([own]))
    assert is_surely_clean(value, ALL, MASKER._scanner, (GROWTH, SLACK))
    assert [finding.detector for finding in masker.mask(value, ("secrets", "custom"))[1]] == ["custom.short"]
