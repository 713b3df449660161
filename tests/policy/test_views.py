"""Views of values, and the short ways to them."""

import math

import pytest

from proxy.policy.text import fold, read_text
from proxy.policy.views import read_number, view_text


def number(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "5",
            " 5",
            "+5",
            "-.5",
            ".5",
            "5.",
            "1_0",
            "1e3",
            "e3",
            "inf",
            "-Infinity",
            "nan",
            "N",
            "\x1c5",
            "\t7\n",
            "٣",
            "½",
        ),
        *("0x10", "", " ", "a", "utf-8", "10**5", "--1", "+", ".", "i", "\u00a05", "1 2", "5\u200b"),
    ],
)
def test_a_number_is_read_as_python_reads_it(text):
    expected = number(text)
    assert read_number(text) == (None if expected is not None and math.isnan(expected) else expected)


@pytest.mark.parametrize("text", ["", "a", " A b\t", "X\x1c", "a\nB ", "%41", "É ", "\u200bA"])
def test_a_text_has_its_readings_and_these_without_case_and_outer_blanks(text):
    view = view_text(text)
    folded = [fold(reading) for reading in read_text(text).readings]
    assert view.readings == read_text(text).readings
    assert set(view.folded) == {*folded, *(reading.strip() for reading in folded)}
    assert len(set(view.folded)) == len(view.folded)
