"""How the tour looks: on a terminal, in a pipe, and as a picture that is the same each time it is made."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDTH = 104
WHO = {"agent": "bold cyan", "interlock": "bold yellow", "server": "bold green", "operator": "bold magenta"}

# What differs from run to run, and what stands for it in the picture, of the same length: tables stay as they are.
VARYING = (
    (
        re.compile(r"\b0[0-9a-f]{7}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
        "0198c0de-7d31-7c52-a1b0-5e0d9f1c2a44",
    ),
    (re.compile(r"\b0[0-9a-f]{7}-[0-9a-f]{4}\b"), "0198c0de-7d31"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b"), "2026-01-31 18:00:00"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d{5}/login#ill_[\w-]{43}"), f"18090/login#ill_{'x' * 43}"),
    (re.compile(r"(?<=127\.0\.0\.1:)(?!18090/)\d{5}\b"), "18080"),
    (re.compile(r"(?<=localhost:)\d{5}\b"), "18443"),
    (re.compile(r"(?<=github-token:)[0-9a-f]{4}(?=\])"), "3f9a"),
    # How often a server is looked at, and so how many events there are, depends on how busy the machine is.
    (re.compile(r"(?<=a44) +\d+ +0 +\d+ +(?=good)"), "      12          0         12  "),
    (re.compile(r"^\d+(?= events of )"), "36"),
)

# rich's own frame fetches a font from elsewhere; a picture in a README should not.
FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: Menlo, "DejaVu Sans Mono", Consolas, monospace; font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Screen:
    """Where the tour is shown; `picture` is a file that it is drawn into in place of that."""

    def __init__(self, picture: Path | None = None) -> None:
        self._picture = picture
        if picture:
            self._console = Console(
                record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor"
            )
        else:
            terminal = Console()
            self._console = Console(width=min(terminal.width, WIDTH) if terminal.is_terminal else WIDTH)
        self._steps = 0

    def step(self, title: str, why: str = "") -> None:
        """Begin a step of the tour."""
        self._steps += 1
        self._console.print()
        self._console.print(Text.assemble((f" {self._steps} ", "bold black on cyan"), " ", (title, "bold"), f"  {why}"))

    def says(self, who: str, words: str, style: str = "") -> None:
        """Show what one of the parts says or does."""
        row = Table.grid(padding=(0, 2))
        row.add_column(width=9, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(Text(who, WHO[who]), Text(self._stable(words), style))
        self._console.print(Padding(row, (0, 0, 0, 4), expand=False))

    def remark(self, words: str) -> None:
        """Say something of what was shown."""
        self._console.print(Padding(Text(self._stable(words), "italic"), (0, 0, 0, 4), expand=False))

    def command(self, line: str, output: str) -> None:
        """Show a command, and what it printed."""
        self._console.print(Padding(Text.assemble(("$ ", "dim"), (line, "bold")), (0, 0, 0, 4), expand=False))
        for each in output.rstrip().splitlines():
            self._console.print(
                Padding(Text.from_ansi(self._stable(each)), (0, 0, 0, 4), expand=False), no_wrap=True, crop=False
            )

    def begin(self, words: str) -> None:
        """Say what this is."""
        self._console.print(Text(words, "bold"))

    def path(self, *stations: tuple[str, str]) -> None:
        """Show the way of a call."""
        way = Text(" ──TLS──▶ ").join(
            Text.assemble((who, WHO[who]), f" {self._stable(at)}".rstrip()) for who, at in stations
        )
        self._console.print(way)

    def next(self, ways: dict[str, str]) -> None:
        """Say where to go from here."""
        rows = Table.grid(padding=(0, 2))
        for where, what in ways.items():
            rows.add_row(Text(where, "bold cyan"), Text(what))
        self._console.print()
        self._console.print(Text("Next", "bold"))
        self._console.print(Padding(rows, (0, 0, 0, 4), expand=False))

    def finish(self) -> None:
        """Draw the picture, where there is to be one."""
        if self._picture:
            drawn = self._console.export_svg(title="make demo", code_format=FRAME, unique_id="demo")
            self._picture.write_text("".join(f"{line.rstrip()}\n" for line in drawn.splitlines() if line.strip()))

    def _stable(self, words: str) -> str:
        if self._picture:
            for pattern, instead in VARYING:
                words = pattern.sub(instead, words)
        return words
