"""Shapes of plots."""

from __future__ import annotations

import math

import pytest

from proxy.console.charts import bar_widths, lines, nice_ceiling, stacked_columns


@pytest.mark.parametrize(
    ("value", "ceiling"),
    [(0, 1), (-3, 1), (1, 1), (1.01, 2), (3, 5), (5, 5), (7, 10), (99, 100), (101, 200), (0.03, 0.05), (math.inf, 1)],
)
def test_a_scale_ends_at_a_number_that_people_count_by(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)


def test_columns_stand_on_each_other_and_within_the_plot() -> None:
    plot = stacked_columns({"allow": [8, 0, 3], "deny": [2, 0, 0]})
    assert plot.columns == 3
    assert plot.scale == (10.0, 5.0, 0.0)
    foot, top, third = plot.rects
    assert (foot.series, foot.y + foot.height, foot.height) == ("allow", 100, 80)
    assert (top.series, top.y + top.height, top.y) == ("deny", foot.y, 0)
    assert third.x == pytest.approx(2.12)


def test_one_call_among_a_million_is_seen() -> None:
    plot = stacked_columns({"allow": [1_000_000], "deny": [1]})
    assert all(rect.height >= 1.5 or rect.y == 0 for rect in plot.rects)
    assert plot.rects[1].height > 0 or plot.rects[0].height == 100


def test_a_line_breaks_where_there_is_nothing_and_shows_a_lone_value() -> None:
    plot = lines({"p50": [None, 10, 20, None, 5]})
    (line,) = plot.lines
    assert line.path == "M1.5 50h0L2.5 0M4.5 75h0"


def test_nothing_to_draw_is_an_empty_plot() -> None:
    assert stacked_columns({}).rects == ()
    assert lines({"p50": [None, None]}).lines[0].path == ""
    assert bar_widths([]) == []


def test_the_longest_bar_fills_its_place() -> None:
    assert bar_widths([10, 5, 0, 0.001]) == [100, 50, 0, 1.5]
