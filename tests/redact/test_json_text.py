"""A value becomes one text, spans of the text lead back to leaves, and changed leaves make a new value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.redact.json_text import FRAGMENT, UNREADABLE, Document, ScanText, is_protocol_word, is_text_as_codes

VALUE = {"a": "one", "b": [{"c": "two"}, 12345678, None], "d": True}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)


def text_of(value: Any) -> tuple[Document, ScanText]:
    document = Document(value)
    return document, ScanText(document, [leaf.text.encode() for leaf in document.leaves])


def test_leaves_come_in_document_order_keys_before_their_values():
    leaves = [(leaf.kind, leaf.text) for leaf in Document(VALUE).leaves]
    assert leaves == [
        *(("key", "a"), ("string", "one"), ("key", "b"), ("key", "c"), ("string", "two")),
        *(("number", "12345678"), ("key", "d")),
    ]


def test_the_text_reads_like_json_and_has_the_strings_end_to_end_after_it():
    _, text = text_of(VALUE)
    assert text.data == b'"a": "one"\n"b": "c": "two"\n12345678\n"d": \nonetwo'
    assert text.data[: text.body_size].endswith(b'"d": ')


def test_strings_of_one_name_are_joined_by_themselves_too():
    _, text = text_of([{"id": "x", "part": "AB"}, {"id": "y", "part": "CD"}])
    assert text.data[text.body_size :].split(b"\n") == [b"", b"xAByCD", b"xy", b"ABCD"]


def test_words_of_the_protocol_are_not_joined():
    _, text = text_of([{"type": "text", "text": "AB"}, {"type": "text", "text": "CD"}])
    assert text.data[text.body_size :].split(b"\n")[1] == b"ABCD"


def test_of_long_strings_both_ends_are_joined():
    _, text = text_of(["a" * 2000, "b"])
    assert text.data[text.body_size :] == b"\n" + b"a" * FRAGMENT + b"\n" + b"a" * FRAGMENT + b"b"


@given(VALUES)
def test_every_leaf_is_found_back_from_its_span(value: Any):
    document, text = text_of(value)
    seen = {leaf for leaf, _, _ in text.leaf_spans(0, text.body_size)}
    assert seen == {index for index, leaf in enumerate(document.leaves) if leaf.text}
    for leaf, low, high in text.leaf_spans(0, len(text.data)):
        assert document.leaves[leaf].text.encode()[low:high]


def test_a_span_over_joined_strings_leads_to_each_of_them():
    document, text = text_of({"x": "abc", "y": "def"})
    start = text.data.index(b"abcdef") + 1
    found = [(document.leaves[leaf].text, low, high) for leaf, low, high in text.leaf_spans(start, start + 4)]
    assert found == [("abc", 1, 3), ("def", 0, 2)]


def test_windows_show_part_of_a_text_and_lead_back_to_it():
    document = Document({"k": "0123456789"})
    text = ScanText(document, [b"k", b"0123456789"], {1: [(1, 3), (7, 9)]})
    assert text.data == b'"k": "12\x0078"\n'
    assert text.leaf_spans(text.data.index(b"78"), text.data.index(b"78") + 2) == [(1, 7, 9)]


def test_changed_leaves_make_a_new_value_and_leave_the_old_one_alone():
    document = Document(VALUE)
    new = document.rewritten({1: "ONE", 4: "TWO"})
    assert new == {"a": "ONE", "b": [{"c": "TWO"}, 12345678, None], "d": True}
    assert VALUE["a"] == "one"
    assert document.rewritten({}) is VALUE


@given(VALUES)
def test_rewriting_every_leaf_to_itself_gives_an_equal_value(value: Any):
    document = Document(value)
    changes = {index: leaf.text for index, leaf in enumerate(document.leaves) if leaf.kind == "string"}
    assert document.rewritten(changes) == value


def test_keys_that_become_alike_are_numbered_in_their_order():
    document = Document({"a": 1, "b": 2, "m": 3, "c": 4})
    keys = {index: "m" for index, leaf in enumerate(document.leaves) if leaf.text in ("a", "b")}
    assert document.rewritten(keys) == {"m~2": 1, "m~3": 2, "m": 3, "c": 4}
    assert list(document.rewritten(keys)) == ["m~2", "m~3", "m", "c"]


def test_a_path_shows_a_masked_key_and_quotes_an_odd_one():
    document = Document({"secret": {"we.ird": ["x"]}})
    index = len(document.leaves) - 1
    assert document.path(index) == 'secret["we.ird"][0]'
    assert document.path(index, document.shown_keys({0: "[mask]"})) == '["[mask]"]["we.ird"][0]'


@pytest.mark.parametrize(
    ("value", "binary"),
    [
        ({"blob": "x"}, True),
        ({"data": "x", "mimeType": "image/png"}, True),
        ({"data": "x"}, False),
        ({"text": "x"}, False),
    ],
)
def test_base64_of_the_protocol_is_known_by_its_key(value: dict, binary: bool):
    document = Document(value)
    assert document.is_binary(document.leaves[1]) is binary


def test_a_number_too_long_to_print_is_unreadable_and_a_small_one_left_out():
    assert [leaf.text for leaf in Document([10**5000, 7, 999_999]).leaves] == [UNREADABLE]


@pytest.mark.parametrize(
    ("item", "is_text"),
    [
        ([65] * 13, True),
        ([65] * 12, False),
        ([*[65] * 12, 127], False),
        ([*[65] * 12, True], False),
        ([*[65] * 12, "A"], False),
    ],
)
def test_text_as_codes_is_long_and_of_plain_characters(item: list, is_text: bool):
    assert is_text_as_codes(item) is is_text


@pytest.mark.parametrize(
    ("name", "text", "is_word"),
    [("type", "text", True), ("mimeType", "image/svg+xml", True), ("type", "hello", False), ("text", "text", False)],
)
def test_a_word_of_the_protocol_counts_under_its_key_alone(name: str, text: str, is_word: bool):
    assert is_protocol_word(name, text) is is_word
