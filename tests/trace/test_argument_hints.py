"""What is looked for of a call's arguments, and where it is found."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.trace.argument_hints import MAX_SHAPES, MAX_VALUES, ArgumentHints, NumberPlaces, hints_in


def test_arguments_however_deep_give_a_bounded_number_of_texts() -> None:
    deep: Any = "leaf-value"
    for _ in range(100):
        deep = [deep]
    assert hints_in(deep) == ArgumentHints()
    assert len(hints_in([f"text-{n}" for n in range(1000)]).texts) == MAX_VALUES
    assert len(hints_in(list(range(999))).numbers) == MAX_VALUES


def test_what_is_looked_for() -> None:
    given = {"a": "./x/y", "b": 12345, "c": True, "d": "ab", "e": 7, "f": "http://[bad", "g": "https://u@host.example/"}
    found = hints_in({**given, "h": "/in/report-12.pdf"})
    urls = ("http://[bad", "https://u@host.example/", "host.example")
    assert found.texts == ("./x/y", "/x/y", "12345", *urls, "/in/report-12.pdf", "report-12")
    assert found.numbers == {"7", "12", "12345"}


@pytest.mark.parametrize(
    ("text", "touched", "length"),
    [
        ("/d/file-1", "/d/file-1", 9),
        ("/d/file-1", "/d/file-12", 0),
        ("/d/file-1", "/d/file-12\n/d/file-1", 9),
        ("report", "/d/report.txt", 6),
        ("report", "/d/reporting.txt", 0),
        ("port", "/d/report", 0),
        ("docs", "/d/docs/a", 4),
    ],
)
def test_a_text_counts_where_it_is_whole(text: str, touched: str, length: int) -> None:
    assert ArgumentHints((text,)).longest_in(touched) == length


def test_a_place_where_arguments_stand_is_learned() -> None:
    places, calls = NumberPlaces(), [ArgumentHints(numbers=frozenset({str(n)})) for n in (3, 4)]
    for step in range(6):
        assert places.fitting(f"/7/item-3-{step}", calls) == ([] if step < 4 else [0])
        places.learn(f"/7/item-3-{step}", calls)
    assert places.fitting("/7/item-4-3", calls) == [1]
    assert places.fitting("/7/item-5-3", calls) == []
    assert places.fitting("/other-4", calls) == []


def test_shapes_are_bounded() -> None:
    places, calls = NumberPlaces(), [ArgumentHints(numbers=frozenset({"3"}))]
    for number in range(MAX_SHAPES + 10):
        places.learn("x" * (number % 50) + "/" * (number // 50) + "3", calls)
    assert len(places._places) <= MAX_SHAPES
