"""Text as every database takes it; its properties are in test_proposal_store.py, on real databases."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.store.packed_text import pack, unpack

ANY_TEXT = st.text(st.characters(exclude_categories=()))
SHORT = st.text(st.sampled_from('\x00\x01\ud800"a\\'), max_size=4)


@given(ANY_TEXT | SHORT)
def test_what_is_packed_comes_out_as_it_was_and_fits_a_database(text: str) -> None:
    packed = pack(text)
    assert unpack(packed) == text
    assert b"\0" not in packed.encode()


@given(SHORT, SHORT)
def test_no_two_texts_are_packed_alike(one: str, other: str) -> None:
    assert (pack(one) == pack(other)) is (one == other)


def test_ordinary_text_is_itself() -> None:
    for text in ("", "read_file", "é\U0001f600", "\\u0000", "a\x01b", "\n\t"):
        assert pack(text) == text
