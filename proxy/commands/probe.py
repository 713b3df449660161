"""`interlock probe`: reports what a server's tools really do, compared with what they declare."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from proxy import __version__
from proxy.commands.options import ConfigFile, StateDir, takes
from proxy.commands.terminal import print_error, print_json_lines, printable
from proxy.config import Settings, load_settings
from proxy.core.model import JsonObject
from proxy.errors import ConfigError, StartError, TracingError
from proxy.probe import baseline
from proxy.probe.report import ProbeReport
from proxy.sandbox.process_reaper import SIGNALLED
from proxy.system.secret_files import write_private
from proxy.trace.server_name import server_name as name_server
from proxy.vault.source_files import hidden_sources

EPILOG = """
Examples:
  interlock probe -- uvx mcp-server-time
  interlock probe --env API_KEY -- npx -y @modelcontextprotocol/server-filesystem {documents}
  interlock probe --format sarif --allow probe-allow.yaml -- python my_server.py
  interlock probe --transport http https://mcp.example.com/mcp
"""
ACCEPT = "Use this probe's result as the baseline for later probes; the exit code is 0."
CLEAN, OTHER_ERROR, IMPOSSIBLE, FINDINGS = 0, 1, 2, 3
RANKS = {"never": 3, "high": 2, "info": 1}
type Format = Literal["text", "json", "sarif", "html"]


@dataclass(frozen=True, slots=True)
class HowToProbe:
    """What is probed, and how its tools are called."""

    env: dict[str, str]
    repeats: int
    call_timeout: float
    server_name: str | None
    hostile: bool = False

    def name(self, command: list[str], *, remote: bool = False) -> str:
        return self.server_name or (command[0] if remote else name_server(command))

    def baseline_key(self, command: list[str], *, remote: bool = False) -> str:
        """Return what a baseline is kept by: the name that was given, or the command."""
        return self.server_name or baseline.command_key(self.name(command, remote=remote), command)


def how_to_probe(
    env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, or NAME to pass on this shell's value; the server gets no other."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=0, max=100, help="How often to repeat each call.")] = 3,
    call_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a call may take.")] = 10.0,
    server_name: Annotated[
        str | None, typer.Option(help="The server's name in records and baselines; default: its package or program.")
    ] = None,
    hostile: Annotated[  # noqa: FBT002
        bool, typer.Option("--hostile", help="Also try inputs of a malicious caller: commands, templates, paths.")
    ] = False,
) -> HowToProbe:
    return HowToProbe(_variables(env or []), repeats, call_timeout, server_name, hostile)


@dataclass(frozen=True, slots=True)
class HowToReport:
    """Where the result goes, and what makes the exit code 3."""

    fail_on: Literal["never", "info", "high"]
    form: Format
    allow: Path | None
    out_dir: Path | None


def how_to_report(
    fail_on: Annotated[
        Literal["never", "info", "high"], typer.Option(help="Lowest severity that makes the exit code 3.")
    ] = "high",
    form: Annotated[Format, typer.Option("--format", help="How to print the report.")] = "text",
    allow: Annotated[
        Path | None, typer.Option(help="File of findings that are accepted, each with its reason.")
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option(help="Folder for the report in every format, and the trace with all that it shows.")
    ] = None,
) -> HowToReport:
    return HowToReport(fail_on, form, allow, out_dir)


@takes(how_to_probe, how_to_report)
def probe(
    how: HowToProbe,
    out: HowToReport,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The server's command and arguments, after --; or a URL.")
    ],
    transport: Annotated[
        Literal["stdio", "http", "sse"],
        typer.Option(help="How to reach it; over http and sse only its declarations are checked."),
    ] = "stdio",
    accept: Annotated[bool, typer.Option("--accept", help=ACCEPT)] = False,  # noqa: FBT002
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,  # noqa: FBT002
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
    remote = transport != "stdio"
    key = how.baseline_key(command, remote=remote)
    known, entries = baseline.load(settings.state_dir, key), _entries(out.allow)
    folder = _made(out.out_dir)
    prepare(settings)
    try:
        if transport != "stdio":
            report = _probe_remote(how.name(command, remote=True), command, transport, known)
        else:
            report = probe_local(settings, how, command, known, folder / "trace.log" if folder else None)[0]
    except (TracingError, StartError) as error:
        print_error(str(error).removeprefix("interlock run: "), as_json=as_json)
        raise typer.Exit(IMPOSSIBLE if isinstance(error, TracingError) else OTHER_ERROR) from None
    report = _with_allow_list(report, entries)
    _keep(settings, how.name(command, remote=remote), key, report, replace=known is None or accept)
    _show(settings, report, "json" if as_json else out.form, folder, how.env)
    worst = report.worst()
    if worst is not None and RANKS[worst] >= RANKS[out.fail_on] and not accept:
        raise typer.Exit(FINDINGS)
    raise typer.Exit(OTHER_ERROR if report.problem else CLEAN)


def prepare(settings: Settings) -> None:
    """Load the patterns that find orders to the model, which take seconds to compile, from the state folder's cache."""
    from proxy.injection import prepare as prepare_patterns  # noqa: PLC0415
    from proxy.system.secret_files import FileCache  # noqa: PLC0415

    prepare_patterns(FileCache(settings.state_dir / "cache"))


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


def _made(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"--out-dir {folder} cannot be made: {error.strerror}") from error
    return folder


def _entries(file: Path | None) -> tuple[Any, ...]:
    if file is None:
        return ()
    from proxy.probe.allow_list import load_allow_list  # noqa: PLC0415  not needed for --help

    return load_allow_list(file)


def _with_allow_list(report: ProbeReport, entries: tuple[Any, ...]) -> ProbeReport:
    if not entries:
        return report
    from proxy.probe.allow_list import apply_allow_list  # noqa: PLC0415

    return apply_allow_list(report, entries, dt.datetime.now(dt.UTC).date())


def _probe_remote(
    name: str, command: list[str], transport: Literal["http", "sse"], known: baseline.ServerBaseline | None
) -> ProbeReport:
    from proxy.probe.remote import probe_remote  # noqa: PLC0415  not needed for --help

    if len(command) != 1 or not re.match(r"https?://", command[0]):
        raise ConfigError(f"--transport {transport} takes one URL, not {' '.join(command)!r}")
    return asyncio.run(probe_remote(name, command[0], known, transport))


def probe_local(
    settings: Settings,
    how: HowToProbe,
    command: list[str],
    known: baseline.ServerBaseline | None = None,
    trace_file: Path | None = None,
) -> tuple[ProbeReport, Any]:
    """Probe a stdio server, with a progress bar on stderr; return the report and the evidence for it."""
    from proxy.probe.probe import Probe, ProbePlan  # noqa: PLC0415
    from proxy.trace.tracer import find_strace  # noqa: PLC0415

    plan = ProbePlan(
        how.name(command),
        tuple(command),
        find_strace(os.environ),
        how.env,
        repeats=how.repeats,
        call_seconds=how.call_timeout,
        state_dir=settings.state_dir,
        sources=tuple(path for some in hidden_sources(settings.state_dir) for path in some),
        trace_file=trace_file,
        hostile=how.hostile,
    )
    columns = (TextColumn("probing {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(plan.name), total=None)

        def progress(made: int, total: int, tool: str) -> None:
            bar.update(task, completed=made, total=total, description=printable(tool)[:40])

        async def run() -> tuple[ProbeReport, Any]:
            task = asyncio.current_task()
            assert task is not None
            # Cancelled instead of killed, so that the sandbox and the server's processes are cleaned up.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            one = Probe(plan, progress)
            return await one.run(known), one.evidence

        try:
            return asyncio.run(run())
        except asyncio.CancelledError:  # SIGTERM: the sandbox is removed, and there is no result
            raise typer.Exit(SIGNALLED + signal.SIGTERM) from None


def _keep(settings: Settings, name: str, key: str, report: ProbeReport, *, replace: bool) -> None:
    """Record the result; the first one, or an accepted one, becomes the baseline for later probes."""
    from proxy.commands.probe_events import record  # noqa: PLC0415

    record(settings, name, report, time.time())
    # A probe that broke off saw only part of what the tools do: as a baseline it would make the rest look new.
    if replace and report.problem is None:
        tools = {str(tool.get("name")): tool for tool in report.manifest}
        baseline.save(settings.state_dir, key, baseline.ServerBaseline(tools, report.profiles))


def _show(settings: Settings, report: ProbeReport, form: Format, folder: Path | None, env: dict[str, str]) -> None:
    """Print the report, masked; and write it to the folder in every format."""
    from proxy.commands.probe_events import masked  # noqa: PLC0415
    from proxy.commands.probe_text import print_report  # noqa: PLC0415
    from proxy.probe.html_report import html_report  # noqa: PLC0415
    from proxy.probe.sarif import sarif  # noqa: PLC0415

    data = masked(settings, report.data(), env)
    if folder is not None:
        _write(folder, "report.json", json.dumps(data, indent=2))
        _write(folder, "report.sarif", json.dumps(sarif(data, __version__), indent=2))
        _write(folder, "report.html", html_report(data))
    if form == "text":
        print_report(data)
    elif form == "html":
        typer.echo(html_report(data), nl=False)
    else:
        shown: JsonObject = data if form == "json" else sarif(data, __version__)
        print_json_lines([shown])


def _write(folder: Path, name: str, text: str) -> None:
    try:
        write_private(folder / name, f"{text.rstrip()}\n".encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise ConfigError(f"{folder / name} cannot be written: {error.strerror}") from error
