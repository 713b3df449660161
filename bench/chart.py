"""The chart of a run, as SVG written by hand: bars that can be read on light and on dark pages. Pure but for `main`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, LEFT, RIGHT, BAR, GAP, TITLE = 760, 250, 130, 20, 8, 44
STYLE = """\
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-weight: 600; font-size: 14px; }
    .note { fill: #59636e; font-size: 12px; }
    .bar { fill: #8c959f; }
    .ours { fill: #1a7f5a; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .note { fill: #9198a1; }
      .bar { fill: #6e7681; }
      .ours { fill: #3fb68b; }
    }
  </style>
"""


@dataclass(frozen=True)
class Bar:
    """One bar; `label` stands behind it."""

    name: str
    value: float
    label: str
    ours: bool = False


@dataclass(frozen=True)
class Panel:
    """Bars that share a scale."""

    title: str
    note: str
    bars: Sequence[Bar]

    @property
    def height(self) -> int:
        return TITLE + len(self.bars) * (BAR + GAP) + 16


def _panel(panel: Panel, top: int) -> str:
    most = max((bar.value for bar in panel.bars), default=0.0) or 1.0
    lines = [
        f'  <text class="title" x="12" y="{top + 18}">{escape(panel.title)}</text>',
        f'  <text class="note" x="12" y="{top + 35}">{escape(panel.note)}</text>',
    ]
    for number, bar in enumerate(panel.bars):
        y = top + TITLE + number * (BAR + GAP)
        width = max(2.0, bar.value / most * (WIDTH - LEFT - RIGHT))
        shade = "ours" if bar.ours else "bar"
        lines += [
            f'  <text x="{LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(bar.name)}</text>',
            f'  <rect class="{shade}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3"/>',
            f'  <text x="{LEFT + width + 8:.1f}" y="{y + 15}">{escape(bar.label)}</text>',
        ]
    return "\n".join(lines) + "\n"


def draw(panels: Sequence[Panel]) -> str:
    """Return the SVG."""
    drawn, top = [], 8
    for panel in panels:
        drawn.append(_panel(panel, top))
        top += panel.height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        'role="img" aria-label="Interlock beside its alternatives">\n'
    )
    return head + STYLE + "".join(drawn) + "</svg>\n"


NAMES = {
    "direct": "no proxy",
    "nginx": "nginx, reverse proxy",
    "mitmdump": "mitmdump, no addon",
    "naive": "mitmdump, naive addon",
    "empty": "Interlock, empty gate",
    "recording": "Interlock, nothing but two bare events on disk",
    "no redaction": "Interlock, no redaction",
    "interlock": "Interlock, everything on",
    "fastmcp": "FastMCP proxy",
    "contextforge": "ContextForge",
    "plain": "the server by itself",
    "run": "interlock run",
    "traced": "interlock run, traced",
    "mcp-firewall": "mcp-firewall",
}
OURS = {"interlock", "run", "traced"}


def _bars(
    figures: Mapping[str, Any], name: str, unit: str, *, base: float = 0.0, skip: Sequence[str] = ()
) -> list[Bar]:
    return [
        Bar(
            NAMES.get(who, who),
            max(0.0, each[name] - base),
            f"{each[name] - base:,.{_digits(each[name])}f} {unit}",
            who in OURS,
        )
        for who, each in figures.items()
        if each.get(name) is not None and who not in skip
    ]


def _digits(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


def panels(results: Mapping[str, Any]) -> list[Panel]:
    """Choose what to show of a run."""
    tls, gateways, stdio = (results.get(name, {}) for name in ("tls-32", "gateways", "stdio"))
    found = [
        Panel(
            "Calls a second",
            "CONNECT and TLS on both sides, 32 connections; longer is better",
            _bars(tls, "rate", "/s", skip=("direct",)),
        ),
        Panel(
            "CPU a call",
            "the same run, all processes of the proxy; shorter is better",
            _bars(tls, "cpu_us", "µs"),
        ),
    ]
    if "direct" in gateways:
        base = gateways["direct"]["p50_ms"]
        note = "median, one connection, beyond what the server itself takes; shorter is better"
        found.append(Panel("Added to a call", note, _bars(gateways, "p50_ms", "ms", base=base, skip=("direct",))))
    if stdio:
        found.append(Panel("A call over stdio", "median; shorter is better", _bars(stdio, "p50_ms", "ms")))
    return [panel for panel in found if panel.bars]
