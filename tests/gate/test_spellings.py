"""Texts written so that a search finds nothing in them."""

import codecs
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gate.spellings import LONGEST, joined_segments, may_be_respelt, other_spellings

SECRET = "ghp_Zx8Kq2VbN3mLp0Qr7TtYw5Zx8Kq2VbN3mLp0"


def cut(size, mark):
    return mark.join(SECRET[i : i + size] for i in range(0, len(SECRET), size))


@pytest.mark.parametrize(
    "text",
    [
        *(cut(size, mark) for size in (1, 2, 3, 4, 5, 6, 8) for mark in "-. :,|;"),
        SECRET[::-1],
        codecs.encode(SECRET, "rot13"),
        "".join(f"&#{ord(c)};" for c in SECRET),
        "".join(f"\\{ord(c):03o}" for c in SECRET),
        "".join(f"={ord(c):02X}" for c in SECRET),
    ],
)
@pytest.mark.parametrize("around", ["{}", "see {} there", "<p>{}</p>"])
def test_each_way_is_read(text, around):
    whole = around.format(text)
    assert may_be_respelt(whole)
    assert any(SECRET in found for found in other_spellings(whole))


def test_elements_are_read_as_names_and_values():
    assert list(other_spellings("<a><password>summer2026</password></a>")) == ["password = summer2026"]


@pytest.mark.parametrize("text", ["", "hello world", "a short text, and some more of it.", "x" * (LONGEST + 1)])
def test_plain_texts_have_no_other_spelling(text):
    assert list(other_spellings(text)) == []


def test_segments_that_may_be_pieces_are_put_together():
    assert joined_segments("/a1b2c3d4/x/e5f6a7b8/status") == "a1b2c3d4e5f6a7b8"
    assert joined_segments("/docs/reference/12") == ""


@given(st.text())
def test_what_may_not_be_respelt_is_not(text):
    if not may_be_respelt(text):
        assert list(other_spellings(text)) == []


def test_a_text_made_to_be_slow_is_not():
    began = time.process_time()
    for text in ("a-" * 4096, "aaaa." * 1638, "&#1;" * 2048, "\\101" * 2048, "a b" * 2700):
        list(other_spellings(text))
    assert time.process_time() - began < 2
