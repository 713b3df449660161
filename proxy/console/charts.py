"""Plots as shapes for SVG: stacked columns, lines and bars, in units of their own. Pure.

A plot is as wide as it has columns and 100 high, and is stretched to the page. Its labels are text beside it, which is
not stretched, so that it can be read at any width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEIGHT: Final = 100.0
GAP: Final = 0.12  # between two columns, on each side
LEAST: Final = 1.5  # how high a value is drawn at least: one denied call among a million must be seen


@dataclass(frozen=True, slots=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    series: str


@dataclass(frozen=True, slots=True)
class Line:
    series: str
    path: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Shapes, and the values at the top, the middle and the foot of the plot."""

    columns: int
    scale: tuple[float, float, float]
    rects: tuple[Rect, ...] = ()
    lines: tuple[Line, ...] = ()


def nice_ceiling(value: float) -> float:
    """Return the next number that people count by: 1, 2 or 5 times a power of ten."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def stacked_columns(series: Mapping[str, Sequence[float]]) -> Plot:
    """Return columns whose parts are those of each series, the first at the foot."""
    columns = max((len(values) for values in series.values()), default=0)
    top = nice_ceiling(max((sum(values[at] for values in series.values()) for at in range(columns)), default=0))
    # Whole numbers of calls: half a call is no mark on a scale.
    top = max(top, 2.0)
    rects: list[Rect] = []
    for at in range(columns):
        foot = HEIGHT
        for name, values in series.items():
            if values[at] > 0:
                height = min(max(values[at] / top * HEIGHT, LEAST), foot)
                foot -= height
                rects.append(Rect(_round(at + GAP), _round(foot), _round(1 - 2 * GAP), _round(height), name))
    return Plot(columns, _scale(top), tuple(rects))


def lines(series: Mapping[str, Sequence[float | None]]) -> Plot:
    """Return a line for each series, through the middle of columns; it is broken where a value is missing."""
    columns = max((len(values) for values in series.values()), default=0)
    top = nice_ceiling(max((one for values in series.values() for one in values if one is not None), default=0))
    made = tuple(Line(name, _path(values, top)) for name, values in series.items())
    return Plot(columns, _scale(top), lines=made)


def bar_widths(values: Sequence[float], width: float = 100.0) -> list[float]:
    """Return how long the bar of each value is, the longest `width`."""
    most = max(values, default=0)
    return [_round(max(value / most * width, LEAST) if value > 0 else 0) for value in values]


def _path(values: Sequence[float | None], top: float) -> str:
    steps: list[str] = []
    down = False
    for at, value in enumerate(values):
        if value is not None:
            point = f"{_round(at + 0.5):g} {_round(HEIGHT - value / top * HEIGHT):g}"
            # A line without length: with round ends it shows a value that stands alone as a dot.
            steps.append(f"L{point}" if down else f"M{point}h0")
        down = value is not None
    return "".join(steps)


def _scale(top: float) -> tuple[float, float, float]:
    return top, top / 2, 0.0


def _round(value: float) -> float:
    return round(value, 2)
