"""The overview: how much happens, what is denied and why, how long calls take, and who and what is busiest."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.console.charts import Plot, bar_widths, lines, stacked_columns
from proxy.console.context import NavEntry, view
from proxy.console.overview_figures import DECISIONS, PERCENTILES, Figures, Share, figures
from proxy.console.security import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from proxy.console.context import Console
    from proxy.console.trail import Trail

SAMPLE: Final = 20_000  # events that a page reads at most, evenly over its time
SECTIONS: Final = (("tool", "Busiest tools"), ("agent", "Busiest agents"), ("server", "Busiest servers"))


@dataclass(frozen=True, slots=True)
class Span:
    """A time that a page can show, and the slices of it, in seconds."""

    label: str
    seconds: int
    slice: int

    def starts(self, now: float) -> list[float]:
        """Return the start of each slice, and the end of the last, which has `now` in it."""
        # At round times: a column must not change while its time is over.
        end = (now // self.slice + 1) * self.slice
        count = self.seconds // self.slice
        return [end - (count - at) * self.slice for at in range(count + 1)]


SPANS: Final = {
    "15m": Span("15 minutes", 900, 15),
    "1h": Span("hour", 3600, 60),
    "24h": Span("24 hours", 86_400, 1800),
    "7d": Span("7 days", 604_800, 10_800),
}
DEFAULT: Final = "1h"


def read_span(request: Request, default: str = DEFAULT) -> str:
    """Return which of SPANS a page is asked for. Raises RefusedError."""
    wanted = request.query_params.get("since", default)
    if wanted not in SPANS:
        raise RefusedError(400, "bad_span", f"A time span is one of {', '.join(SPANS)}.")
    return wanted


async def read_figures(trail: Trail, span: Span, now: float) -> Figures:
    """Return the figures of the time up to now. Raises StoreUnavailableError and AuditUnavailableError."""
    starts = span.starts(now)
    async with trail.open() as reader:
        events = await reader.sample(starts, SAMPLE // (len(starts) - 1))
    return await asyncio.to_thread(figures, events, starts)


class OverviewPage:
    nav: NavEntry | None = NavEntry("/", "Overview", "o")

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [view("/", self.show)]

    async def show(self, request: Request) -> Response:
        chosen = read_span(request)
        found = await read_figures(self._console.trail, SPANS[chosen], time.time())
        values = {
            "spans": SPANS,
            "chosen": chosen,
            "span": SPANS[chosen],
            "found": found,
            "percentiles": {percent: found.percentile(percent) for percent in PERCENTILES},
            **_plots(found),
            "denials": with_bars(found.top_rules()),
            "masks": with_bars(found.top_masks()),
            "busiest": [(name, title, with_bars(found.top(name))) for name, title in SECTIONS],
        }
        return self._console.renderer.page(request, "overview.html", values)


def _plots(found: Figures) -> dict[str, Any]:
    slices = found.slices
    counts: dict[str, Sequence[float]] = {one: [part.calls[one] for part in slices] for one in DECISIONS}
    times = {f"p{percent}": [part.percentile(percent) for part in slices] for percent in PERCENTILES}
    calls: Plot = stacked_columns(counts)
    return {"call_plot": calls, "counts": counts, "time_plot": lines(times), "times": times}


def with_bars(shares: Sequence[Share]) -> list[tuple[Share, float, float]]:
    """Return each with the length of its bar, and of the part of it that was denied."""
    widths = bar_widths([share.count for share in shares])
    return [
        (share, width, round(width * share.denied / share.count, 2) if share.count else 0.0)
        for share, width in zip(shares, widths, strict=True)
    ]
