"""Prints the report of a probe on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from proxy.commands.terminal import count, printable, printable_lines, stdout_console

if TYPE_CHECKING:
    from rich.console import Console

    from proxy.core.model import JsonObject

EVIDENCE_LINES = 2
STYLES = {"high": "bold red", "info": "yellow"}


def print_report(report: JsonObject) -> None:
    """Print a report, given as JSON: the findings of several tools first, then tool by tool, then start and end."""
    console = stdout_console()
    console.soft_wrap = True
    tools, found = report["tools"], report["findings"]
    console.print(Text.assemble((printable(report["server"]["name"]), "bold"), f", {count(len(tools), 'tool')}"))
    shared = [each for each in found if len(each["tools"]) > 1]
    if shared:
        console.print(Text("\nin several tools", "bold"))
        _print_findings(console, shared)
    for tool in tools:
        _print_tool(console, tool, [each for each in found if each["tools"] == [tool["name"]]])
    names = {tool["name"] for tool in tools}
    rest = [each for each in found if len(each["tools"]) == 1 and each["tools"][0] not in names]
    console.print(Text.assemble(("\nstart-up and end", "bold"), f"\n  did       {_observed(report['startup'])}"))
    _print_findings(console, rest)
    for said in (report["note"], report["problem"]):
        if said:
            console.print(f"\n{printable_lines(said)}")
    counts = {level: sum(each["severity"] == level for each in found) for level in ("high", "info")}
    allowed = f", {len(report['allowed'])} accepted by the allow list" if report["allowed"] else ""
    console.print(f"\n{count(len(found), 'finding')}: {counts['high']} high, {counts['info']} info{allowed}")


def _print_tool(console: Console, tool: JsonObject, findings: list[JsonObject]) -> None:
    declared = tool["declared"]
    words = (("read-only", "read_only"), ("network", "network"), ("starts programs", "executes"))
    said = ", ".join(word for word, key in words if declared[key])
    outcomes = [call["outcome"] for call in tool["calls"]]
    calls = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes)) or "not called"
    console.print(Text.assemble((f"\n{printable(tool['name'])}", "bold"), f"  ({calls})"))
    console.print(f"  declares  {said or 'nothing beyond its arguments'}")
    console.print(f"  did       {_observed(tool['observed'])}")
    _print_findings(console, findings)


def _observed(seen: dict[str, dict[str, Any]]) -> str:
    parts = []
    for capability, found in seen.items():
        shown = ", ".join(map(printable, found["targets"][:4]))
        parts.append(f"{capability} ({shown})" if shown else f"{capability} ({count(found['count'], 'time')})")
    return "; ".join(parts) or "nothing outside its own process"


def _print_findings(console: Console, findings: list[JsonObject]) -> None:
    for found in findings:
        head = (f"{found['severity'].upper():<5} {found['rule']}", STYLES[found["severity"]])
        tools = [printable(tool) for tool in found["tools"] if tool is not None]
        whose = f"  ({', '.join(tools)})" if len(tools) > 1 else ""
        console.print(Text.assemble("  ", head, f"  {printable(found['message'])}{whose}"))
        for line in found["evidence"][:EVIDENCE_LINES]:
            console.print(Text(f"        {printable(line)[:200]}", "dim"))
