"""`interlock probe`: reports what a server's tools really do, compared with what they declare."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from proxy.commands.options import ConfigFile, StateDir
from proxy.commands.terminal import count, print_error, print_json_lines, printable, printable_lines, stdout_console
from proxy.config import Settings, load_settings
from proxy.errors import ConfigError, StartError, TracingError
from proxy.probe import baseline
from proxy.probe.findings import ProbeFinding, ProbeReport, ToolReport
from proxy.sandbox.process_reaper import SIGNALLED
from proxy.trace.server_name import server_name as name_server

EPILOG = """
Examples:
  interlock probe -- uvx mcp-server-time
  interlock probe --env API_KEY -- npx -y @modelcontextprotocol/server-filesystem {documents}
  interlock probe --json --fail-on high -- python my_server.py
  interlock probe --transport http https://mcp.example.com/mcp
"""
ACCEPT = "Use this probe's result as the baseline for later probes."
CLEAN, OTHER_ERROR, IMPOSSIBLE, FINDINGS = 0, 1, 2, 3
RANKS = {"never": 3, "high": 2, "info": 1}
EVIDENCE_LINES = 2
STYLES = {"high": "bold red", "info": "yellow"}


def probe(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The server's command and arguments, after --; or a URL.")
    ],
    transport: Annotated[
        Literal["stdio", "http"], typer.Option(help="How to reach it; over http only its declarations are checked.")
    ] = "stdio",
    fail_on: Annotated[
        Literal["never", "info", "high"], typer.Option(help="Lowest severity that makes the exit code 3.")
    ] = "high",
    env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, or NAME to pass on this shell's value; the server gets no other."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=0, max=100, help="How often to repeat each call.")] = 3,
    call_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a call may take.")] = 10.0,
    server_name: Annotated[
        str | None, typer.Option(help="The server's name in records and baselines; default: its package or program.")
    ] = None,
    accept: Annotated[bool, typer.Option("--accept", help=ACCEPT)] = False,  # noqa: FBT002
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,  # noqa: FBT002
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Run an MCP server in a sandbox and report what its tools really do.

    Every tool is called with generated inputs. Whatever it does but does not declare is a finding.
    The server runs under strace, without a network, in a temporary home with canary files, and
    cannot change anything outside. {home}, {documents} and {repository} in its command are
    replaced by folders of that home.

    Exit code: 0 without findings, 3 with findings, 2 if this system does not allow tracing,
    1 for any other error, such as a server that ended.
    """
    settings = load_settings({"state_dir": state_dir}, config_file=config).settings
    name = server_name or (command[0] if transport == "http" else name_server(command))
    known = baseline.load(settings.state_dir, name)
    try:
        if transport == "http":
            report = _probe_remote(name, command, known)
        else:
            report = _probe_local(settings, name, command, _variables(env or []), repeats, call_timeout, known)
    except (TracingError, StartError) as error:
        print_error(str(error).removeprefix("interlock run: "), as_json=as_json)
        raise typer.Exit(IMPOSSIBLE if isinstance(error, TracingError) else OTHER_ERROR) from None
    _keep(settings, name, report, known=known, accept=accept)
    if as_json:
        print_json_lines([report.data()])
    else:
        _print(report)
    worst = report.worst()
    if worst is not None and RANKS[worst] >= RANKS[fail_on]:
        raise typer.Exit(FINDINGS)
    raise typer.Exit(OTHER_ERROR if report.problem else CLEAN)


def _variables(said: list[str]) -> dict[str, str]:
    # Only what is named: the server is not trusted, and this shell's environment holds its user's API keys.
    variables = {}
    for each in said:
        name, equals, value = each.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or (not equals and name not in os.environ):
            raise ConfigError(
                f"--env {each.partition('=')[0]!r}: write NAME=VALUE, or the NAME of a variable that is set"
            )
        variables[name] = value if equals else os.environ[name]
    return variables


def _probe_remote(name: str, command: list[str], known: baseline.ServerBaseline | None) -> ProbeReport:
    from proxy.probe.remote import probe_remote  # noqa: PLC0415  not needed for --help

    if len(command) != 1 or not re.match(r"https?://", command[0]):
        raise ConfigError(f"--transport http takes one URL, not {' '.join(command)!r}")
    return asyncio.run(probe_remote(name, command[0], known))


def _probe_local(
    settings: Settings,
    name: str,
    command: list[str],
    variables: dict[str, str],
    repeats: int,
    call_timeout: float,
    known: baseline.ServerBaseline | None,
) -> ProbeReport:
    from proxy.probe.probe import Probe, ProbePlan  # noqa: PLC0415
    from proxy.trace.tracer import find_strace  # noqa: PLC0415

    words, strace, state_dir = tuple(command), find_strace(os.environ), settings.state_dir
    plan = ProbePlan(name, words, strace, variables, repeats=repeats, call_seconds=call_timeout, state_dir=state_dir)
    columns = (TextColumn("probing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(name), total=None)

        def progress(made: int, total: int, tool: str) -> None:
            bar.update(task, completed=made, total=total, description=printable(tool)[:40])

        async def run() -> ProbeReport:
            task = asyncio.current_task()
            assert task is not None
            # Cancelled instead of killed, so that the sandbox and the server's processes are cleaned up.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            return await Probe(plan, progress).run(known)

        try:
            return asyncio.run(run())
        except asyncio.CancelledError:  # SIGTERM: the sandbox is removed, and there is no result
            raise typer.Exit(SIGNALLED + signal.SIGTERM) from None


def _keep(
    settings: Settings, name: str, report: ProbeReport, *, known: baseline.ServerBaseline | None, accept: bool
) -> None:
    """Record the result; the first one, or an accepted one, becomes the baseline for later probes."""
    from proxy.commands.probe_events import record  # noqa: PLC0415

    record(settings, name, report, time.time())
    # A probe that broke off saw only part of what the tools do: as a baseline it would make the rest look new.
    if (known is None or accept) and report.problem is None:
        tools = {str(tool.get("name")): tool for tool in report.manifest}
        baseline.save(settings.state_dir, name, baseline.ServerBaseline(tools, report.profiles))


def _print(report: ProbeReport) -> None:
    console = stdout_console()
    console.soft_wrap = True
    console.print(Text.assemble((printable(report.server["name"]), "bold"), f", {count(len(report.tools), 'tool')}"))
    for tool in report.tools:
        _print_tool(console, tool, [found for found in report.findings if found.tool == tool.name])
    others = {tool.name for tool in report.tools}
    rest = [found for found in report.findings if found.tool not in others]
    console.print(Text.assemble(("\nstart-up and end", "bold"), f"\n  did       {_observed(report.startup)}"))
    _print_findings(console, rest)
    for said in (report.note, report.problem):
        if said:
            console.print(f"\n{printable_lines(said)}")
    counts = {level: sum(found.severity == level for found in report.findings) for level in ("high", "info")}
    console.print(f"\n{count(len(report.findings), 'finding')}: {counts['high']} high, {counts['info']} info")


def _print_tool(console: Console, tool: ToolReport, findings: list[ProbeFinding]) -> None:
    scope = tool.declared
    said = [word for word, holds in (("read-only", scope.read_only), ("network", scope.network)) if holds]
    said += ["starts programs"] if scope.executes else []
    outcomes = [call.outcome for call in tool.calls]
    calls = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes)) or "not called"
    console.print(Text.assemble((f"\n{printable(tool.name)}", "bold"), f"  ({calls})"))
    console.print(f"  declares  {', '.join(said) or 'nothing beyond its arguments'}")
    console.print(f"  did       {_observed(tool.observed)}")
    _print_findings(console, findings)


def _observed(seen: dict[str, dict[str, object]]) -> str:
    parts = []
    for capability, found in seen.items():
        targets = found["targets"]
        shown = ", ".join(map(printable, targets[:4])) if isinstance(targets, list) else ""
        parts.append(
            f"{capability} ({shown})" if shown else f"{capability} ({count(int(str(found['count'])), 'time')})"
        )
    return "; ".join(parts) or "nothing outside its own process"


def _print_findings(console: Console, findings: list[ProbeFinding]) -> None:
    for found in findings:
        head = (f"{found.severity.upper():<5} {found.rule}", STYLES[found.severity])
        console.print(Text.assemble("  ", head, f"  {printable(found.message)}"))
        for line in found.evidence[:EVIDENCE_LINES]:
            console.print(Text(f"        {printable(line)[:200]}", "dim"))
