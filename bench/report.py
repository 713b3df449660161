"""What a run says: tables on the terminal, and the same in docs/performance.md, both from the results file alone.

`python -m bench.report` writes docs/performance.md and its chart anew from bench/results/full.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import chart
from bench.goals import format_number, ratio
from bench.processes import ROOT

RESULTS = ROOT / "bench" / "results"
LATEST = RESULTS / "latest.json"
FULL = RESULTS / "full.json"
PAGE = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- results: written by `python -m bench.report` -->", "<!-- end of results -->"
FIRST, LAST = "<!-- summary: written by `python -m bench.report` -->", "<!-- end of summary -->"
SIGNS = {True: "met", False: "**not met**", None: "open"}
REFERENCES = ("mitmdump", "empty", "1 rule", "off", "sqlite", "1 worker", "plain", "direct")
"""Whom a workload's ratios are against: the first of these that takes part."""

Row = list[str]


def _number(value: float | None, digits: int | None = None) -> str:
    if value is None:
        return ""
    return f"{value:,.{digits}f}" if digits is not None else f"{value:,.0f}" if value >= 100 else format_number(value)


def _times(value: float | None) -> str:
    return "" if value is None else f"{format_number(value)}×"


def load_rows(figures: Mapping[str, Any]) -> tuple[Row, list[Row]]:
    """Return the table of a workload of load, ratios first."""
    reference = next((name for name in REFERENCES if name in figures), next(iter(figures)))
    base = figures[reference]
    head = ["", f"calls/s of {reference}", f"CPU of {reference}", "calls/s", "CPU µs a call", "p50 ms", "p99 ms"]
    rows = [
        [
            chart.NAMES.get(name, name),
            _times(ratio(each["rate"], base["rate"])),
            _times(ratio(each["cpu_us"], base["cpu_us"])),
            _number(each["rate"], 0),
            _number(each["cpu_us"], 0),
            _number(each["p50_ms"]),
            _number(each["p99_ms"]),
        ]
        for name, each in figures.items()
    ]
    return head, rows


def latency_rows(figures: Mapping[str, Any]) -> tuple[Row, list[Row]]:
    """Return the table of calls made one after the other: what each adds, as a multiple of what Interlock adds."""
    base = next((figures[name]["p50_ms"] for name in ("direct", "plain") if name in figures), 0.0)
    own = next((figures[name]["p50_ms"] - base for name in ("interlock", "run") if name in figures), None)
    head = ["", "added, of Interlock's", "added ms", "p50 ms", "p99 ms", "CPU µs a call"]
    rows = [
        [
            chart.NAMES.get(name, name),
            "" if each["p50_ms"] == base else _times(ratio(each["p50_ms"] - base, own)),
            "" if each["p50_ms"] == base else _number(each["p50_ms"] - base),
            _number(each["p50_ms"]),
            _number(each["p99_ms"]),
            _number(each["cpu_us"], 0),
        ]
        for name, each in figures.items()
    ]
    return head, rows


def download_rows(figures: Mapping[str, Any]) -> tuple[Row, list[Row]]:
    """Return the table of the download."""
    base = figures.get("mitmdump", {}).get("mb_per_second")
    rows = [
        [
            chart.NAMES.get(name, name) + (", streaming" if name == "mitmdump" else ""),
            _times(ratio(each["mb_per_second"], base)),
            _number(each["mb_per_second"], 0),
            _number(each["cpu_ms"], 0),
            _number(each["growth_mb"]),
        ]
        for name, each in figures.items()
    ]
    return ["", "speed of mitmdump", "MB/s", "CPU ms", "memory grows by MB"], rows


def plain_rows(figures: Mapping[str, Any]) -> tuple[Row, list[Row]]:
    """Return the table of figures that stand by themselves."""
    return ["", ""], [[name.replace("_", " "), _number(value)] for name, value in figures.items()]


FORMS = {
    "gateways": latency_rows,
    "stdio": latency_rows,
    "download": download_rows,
    "memory": plain_rows,
    "start": plain_rows,
}


def tables(results: Mapping[str, Any]) -> Iterator[tuple[str, Row, list[Row]]]:
    """Return every table of a run: title, head, rows."""
    yield (
        "Goals",
        ["goal", "measured", ""],
        [
            [goal["goal"], goal["text"], SIGNS[goal["met"]] + (f": {goal['reason']}" if "reason" in goal else "")]
            for goal in results["goals"]
        ],
    )
    for name, figures in results["workloads"].items():
        if figures:
            yield results["titles"].get(name, name), *FORMS.get(name, load_rows)(figures)
    for name, figures in results["parts"].items():
        if figures:
            yield f"Part: {name}", ["", "", "", ""], [_part_row(figure) for figure in figures]
    if results["left_out"]:
        yield "Left out", ["what", "why"], [[name, reason] for name, reason in results["left_out"].items()]


def _part_row(figure: Mapping[str, Any]) -> Row:
    bound = next((f"{word} {figure[key]:g}" for key, word in BOUNDS.items() if figure[key] is not None), "")
    return [figure["name"], _number(figure["value"]), figure["unit"], bound]


IN_WORDS = ("Goals", "Left out")
"""Tables of text, not of numbers."""
BOUNDS = {"at_most": "at most", "at_least": "at least"}


def about(results: Mapping[str, Any]) -> str:
    """Say where the figures come from."""
    machine, versions = results["machine"], results["versions"]
    programs = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{results['kind'].capitalize()} run of {results['date']}, commit `{results['commit']}`, "
        f"{results['seconds']:.0f} s. {machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, "
        f"{machine['system']}, Python {machine['python']}; load before the run {machine['load_before']}. {programs}."
    )


def show(results: Mapping[str, Any], console: Console) -> None:
    """Print the tables."""
    for title, head, rows in tables(results):
        table = Table(title=title, title_justify="left", show_edge=False)
        for number, name in enumerate(head):
            table.add_column(name, justify="right" if number and title not in IN_WORDS else "left")
        for row in rows:
            table.add_row(*(cell.replace("[", r"\[") for cell in row))
        console.print(table)
        console.print()
    console.print(about(results), markup=False)


def _markdown(title: str, head: Row, rows: Sequence[Row]) -> str:
    aligned = "---" if title in IN_WORDS else "---:"
    lines = [head, ["---", *(aligned for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def markdown(results: Mapping[str, Any]) -> str:
    """Return the results as they stand in the documentation."""
    parts = [about(results)]
    for title, head, rows in tables(results):
        cells = [[row[0], row[1].replace("; ", "<br>"), *row[2:]] for row in rows] if title == "Goals" else rows
        parts.append(f"### {title[0].upper()}{title[1:]}\n\n{_markdown(title, head, cells)}")
    return "\n\n".join(parts) + "\n"


def summary(results: Mapping[str, Any]) -> str:
    """Return what a user needs to know first: what it adds to a call, calls a second on a core, memory, starts."""
    found = results["workloads"]

    def of(workload: str, name: str, contender: str = "interlock") -> float | None:
        value = found.get(workload, {}).get(contender, {}).get(name)
        return None if value is None else float(value)

    def added(workload: str, way: str, base: str) -> float | None:
        here, without = of(workload, "p50_ms", way), of(workload, "p50_ms", base)
        return None if here is None or without is None else here - without

    def core(workload: str) -> str:
        used, stock = of(workload, "cpu_us"), of(workload, "cpu_us", "mitmdump")
        calls = ratio(1e6, used)
        if calls is None:
            return ""
        of_stock = ratio(used, stock)
        return f"{calls:,.0f}" + (f" (of stock mitmdump's CPU {_times(of_stock)})" if of_stock is not None else "")

    memory, start = found.get("memory", {}), found.get("start", {})
    rows = [
        [
            "Added to a call, one after the other, HTTP (median)",
            _with_unit(added("gateways", "interlock", "direct"), "ms"),
        ],
        ["Added to a call, one after the other, stdio (median)", _with_unit(added("stdio", "run", "plain"), "ms")],
        ["Calls a second on one core, TLS on both sides, 400 B results", core("tls-32")],
        ["The same, results as event streams", core("tls-sse-32")],
        ["The same, 20 KB results", core("tls-large-32")],
        ["New TLS connections a second on one core, a call on each", core("new-connection")],
        ["Memory of a proxy with one worker, at rest", _with_unit(memory.get("rest_mb"), "MB")],
        ["Time to listen, first start and later ones", _both(start.get("first_s"), start.get("later_s"))],
    ]
    return _markdown("", ["with everything on", "measured"], [row for row in rows if row[1]]) + "\n"


def _with_unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{format_number(value)} {unit}"


def _both(first: float | None, later: float | None) -> str:
    return "" if first is None or later is None else f"{format_number(first)} s, {format_number(later)} s"


def _between(page: str, marks: tuple[str, str], text: str) -> str:
    before, begin, rest = page.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"the page has not both marks {marks}")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def fill_in(page: str, results: Mapping[str, Any]) -> str:
    """Put the results into a page, between its marks: a summary first, the tables further down."""
    return _between(_between(page, (FIRST, LAST), summary(results)), (BEGIN, END), markdown(results))


def write_docs(source: Path = FULL) -> None:
    """Write the page and the chart from the results of the last full run."""
    results = json.loads(source.read_bytes())
    PAGE.write_text(fill_in(PAGE.read_text(), results))
    CHART.write_text(chart.draw(chart.panels(results["workloads"])))


if __name__ == "__main__":
    write_docs()
