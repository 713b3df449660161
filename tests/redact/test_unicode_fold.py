"""Characters fold to what they pass for, and smuggled ones are revealed."""

from __future__ import annotations

import pytest

from proxy.redact.unicode_fold import FOLD, REVEAL, SMUGGLING, fold_character, reveal_character


@pytest.mark.parametrize(
    ("character", "plain"), [("\u200b", ""), ("\uff21", "A"), ("é", "e"), ("世", "世"), ("ﬁ", "fi")]
)
def test_a_character_folds_to_what_it_passes_for(character: str, plain: str):
    assert fold_character(character) == plain


@pytest.mark.parametrize(
    "character", ["\u115f", "\u2800", "\u3164", "\u00ad", "\u202e", "\ufeff", "\U000e0041", "\u0301"]
)
def test_what_is_drawn_as_nothing_folds_to_nothing(character: str):
    assert fold_character(character) == ""


@pytest.mark.parametrize(
    ("character", "plain"),
    [("\U000e0041", "A"), ("\ufe0f", "\x0f"), ("\U000e0131", "A"), ("A", "A"), ("\u4e16", "\u4e16")],
)
def test_a_tag_or_a_selector_reveals_the_character_it_carries(character: str, plain: str):
    assert reveal_character(character) == plain


def test_tables_translate_whole_texts_and_leave_ascii_alone():
    assert "\u0410\u200bB c".translate(FOLD) == "AB c"
    assert "x\U000e0041\U000e0042".translate(REVEAL) == "xAB"


@pytest.mark.parametrize("character", ["\U000e0020", "\U000e007e", "\U000e0100", "\U000e01ef"])
def test_every_character_beyond_the_bmp_that_smuggles_begins_alike_in_utf8(character: str):
    assert character.encode().startswith(SMUGGLING)
