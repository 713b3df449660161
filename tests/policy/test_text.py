"""Readings of a string."""

import pytest

from proxy.policy.text import (
    INVISIBLE,
    MAX_DECODES,
    NOT_UTF8,
    AmbiguousError,
    clean,
    fold,
    has_one_reading,
    looks_like_json,
    parse_embedded_json,
    read_text,
)


@pytest.mark.parametrize(
    ("raw", "reading"),
    [
        ("%2e%2e", ".."),
        ("%252e", "."),
        ("%u002e", "."),
        ("%U002E", "."),
        ("\uff0e\uff0e", ".."),
        ("a\u200bb", "ab"),
        ("%e2%80%8ba", "a"),
        ("\uff0525", "%25"),
        ("caf\u0065\u0301", "caf\u00e9"),
    ],
)
def test_what_some_server_decodes_a_string_to_is_among_its_readings(raw, reading):
    text = read_text(raw)
    assert text.readings[0] == raw
    assert reading in text.readings
    assert text.problem is None


@pytest.mark.parametrize("raw", ["", "plain", "a+b", "/etc"])
def test_a_plain_string_has_one_reading(raw):
    assert has_one_reading(raw)
    assert read_text(raw).readings == (raw,)


def test_a_string_that_is_encoded_too_often_or_not_in_utf8_is_a_problem():
    encoded = "%2e"
    for _ in range(MAX_DECODES + 1):
        encoded = encoded.replace("%", "%25")
    assert read_text(encoded).problem == f"encoded more than {MAX_DECODES} times over"
    assert read_text("%ff").problem == NOT_UTF8
    assert read_text("50% off").problem is None
    assert read_text("%uZZZZ").readings == ("%uZZZZ",)
    assert read_text("%UZZZZ").readings == ("%UZZZZ", "%uZZZZ")
    assert read_text("%U00%U0041").readings == ("%U00%U0041", "%u00A")


@pytest.mark.parametrize("text", ["CURL", "c\u200burl", "\uff43\uff35rl", "cur\u00adl"])
def test_texts_that_differ_in_looks_or_case_fold_to_one(text):
    assert fold(text) == "curl"


def test_folding_twice_changes_nothing():
    for code in range(0x80, 0x3000):
        once = fold(chr(code))
        assert fold(once) == once


def test_invisible_characters_are_dropped_and_visible_ones_are_not():
    for code in (0x00AD, 0x200B, 0x202E, 0xFEFF, 0xE0041):
        assert code in INVISIBLE
        assert clean(f"a{chr(code)}b") == "ab"
    assert not INVISIBLE.keys() & set(range(0x20, 0x7F))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1]}', {"a": [1]}),
        (' \ufeff["x"]', ["x"]),
        ('"x"', "x"),
        ("{a}", None),
        ("5", None),
        ("", None),
    ],
)
def test_json_inside_a_string_is_parsed(text, value):
    assert parse_embedded_json(text) == value


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": 1, "b": 1}]', "[" * 100_000, r'["\ud800"]'])
def test_json_that_parsers_disagree_on_is_ambiguous(text):
    with pytest.raises(AmbiguousError):
        parse_embedded_json(text)


def test_half_a_character_is_ambiguous_and_a_whole_one_is_not():
    with pytest.raises(AmbiguousError):
        read_text("%ud835")
    assert parse_embedded_json(r'["\ud835\udc1e"]') == ["\U0001d41e"]


def test_what_looks_like_json_is_seen_by_its_first_character():
    assert [looks_like_json(text) for text in (" {", "[", '"', "5", "", "a{")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
