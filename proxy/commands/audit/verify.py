"""`interlock audit verify | schema | rotate-key`: prove that the trail is what was written."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from proxy.audit.chain_reader import Chains, ExportedChains
from proxy.audit.checkpoints import Signed
from proxy.audit.event_schema import json_schema
from proxy.audit.pipeline import destination
from proxy.audit.reader import open_audit
from proxy.audit.signed_checkpoints import read_checkpoints
from proxy.audit.signing_keys import AuditKeys
from proxy.audit.verify import Report, WriterReport, expected
from proxy.audit.verify import verify as verify_chains
from proxy.commands.options import AsJson, ConfigFile, OneLine, StateDir, state_folder, store_settings, takes
from proxy.commands.terminal import (
    count,
    print_json_lines,
    print_note,
    print_schema,
    print_table,
    printable,
    stdout_console,
)
from proxy.commands.time_format import parse_time
from proxy.config import Settings
from proxy.errors import ConfigError

EXIT_BAD = 1
EXIT_UNPROVEN = 3
EPILOG = """
Examples:

  interlock audit verify

  interlock audit verify --export trail.jsonl --checkpoints /mnt/vault/checkpoints.jsonl --public-key vault.pem
"""


@takes(store_settings)
def verify(
    settings: Settings,
    *,
    export: Annotated[Path | None, typer.Option(help="Verify a file that `audit export` made instead.")] = None,
    checkpoints: Annotated[
        list[Path] | None, typer.Option(help="Files of checkpoints; default: the one of the settings.")
    ] = None,
    public_key: Annotated[
        list[Path] | None, typer.Option(help="Public keys to trust (PEM); default: those of the state folder.")
    ] = None,
    exported_at: Annotated[
        str | None,
        typer.Option(help="When the export was made, as an age or a time: what was signed later is not missed."),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Only what is still in the local logs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify the hash chain of every writer, and every signed checkpoint of it.

    An event that was edited, deleted, moved, cut off or rewritten is found, and
    the first bad one of each writer is named.

    Exit code 0: every event is what was written, and checkpoints vouch for every
    writer. Exit code 1: something is bad, or could not be read. Exit code 3: nothing
    is bad, but no checkpoint covers some of the writers.
    """
    until = parse_time(exported_at, "--exported-at", time.time()) if exported_at else None
    signed, broken = read_checkpoints(settings, checkpoints or (), public_key or (), until)
    report = asyncio.run(_verify(settings, export, signed, local=local))
    if as_json:
        _print_json(report, broken)
    else:
        _print(report, broken, str(export) if export else named_store(settings))
    if report.problems or broken:
        raise typer.Exit(EXIT_BAD)
    if report.unsigned:
        raise typer.Exit(EXIT_UNPROVEN)


def schema(as_json: OneLine = False) -> None:  # noqa: FBT002
    """Print the JSON Schema of a stored event."""
    print_schema(json_schema(), as_json=as_json)


def rotate_key(state_dir: StateDir = None, config: ConfigFile = None, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Let a new key sign checkpoints; what the old one signed can still be verified. Running proxies follow at once."""
    key = AuditKeys(state_folder(state_dir, config)).rotate()
    if as_json:
        print_json_lines([{"key": key, "use": "signs"}])
    else:
        print_note(f"Key {key} signs from now on.")


def named_store(settings: Settings) -> str:
    return destination(settings) if settings.postgres else "the embedded store"


async def _verify(settings: Settings, export: Path | None, signed: dict[str, Signed], *, local: bool) -> Report:
    async with open_audit(settings.postgres, settings.state_dir, local=local) as audit:
        # An export is read without the store: an auditor has the file and the keys alone.
        chains: Chains = audit.chains() if export is None else ExportedChains(export)
        if not (export or local or audit.store or await chains.heads()):
            raise ConfigError(f"there is no audit trail in {settings.state_dir}; give --state-dir or --database-url")
        with show_progress("verifying", expected(signed) or None, watched=sys.stderr.isatty()) as progress:
            return await verify_chains(chains, signed, progress)


@contextlib.contextmanager
def show_progress(what: str, total: int | None, *, watched: bool) -> Iterator[Callable[[int], None]]:
    """Draw a progress bar on standard error where somebody watches; yield the function that advances it."""
    count = (BarColumn(), MofNCompleteColumn()) if total else (SpinnerColumn(),)
    columns = (TextColumn(what), *count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not watched) as bar:
        task = bar.add_task(what, total=total)
        yield lambda number: bar.advance(task, number)


def _print_json(report: Report, broken: list[str]) -> None:
    problems = [asdict(problem) for problem in report.problems]
    summary = {"checked": report.checked, "problems": problems, "broken_checkpoints": len(broken)}
    print_json_lines({"kind": "writer", **asdict(writer)} for writer in report.writers)
    print_json_lines({"kind": "checkpoint", "problem": text} for text in broken)
    print_json_lines([{"kind": "summary", **summary, "unsigned": report.unsigned}])


def _print(report: Report, broken: list[str], where: str) -> None:
    console = stdout_console()
    console.soft_wrap = True
    rows = [(printable(one.writer), one.checked, one.set_aside, one.proven, _state(one)) for one in report.writers]
    if rows:
        columns = ("writer", "events", "set aside", "proven to", "state")
        print_table(columns, rows, right=("events", "set aside", "proven to"))
    for problem in report.problems:
        name = f"event {problem.seq or ''} of writer {problem.writer or '?'} ({problem.event_id or 'no id'})"
        console.print(f"BAD: {printable(name)}: {problem.what}: {problem.detail}", style="bold red")
    for text in broken:
        console.print(f"BAD CHECKPOINT: {printable(text)}", style="bold red")
    if report.unsigned:
        unproven = f"{len(report.unsigned)} of {count(len(report.writers), 'writer')}"
        console.print(f"No checkpoint covers {unproven}: give their files with --checkpoints.")
    good = "all as they were written" if not report.problems else "up to the first bad one of each writer"
    checked = f"{count(report.checked, 'event')} of {count(len(report.writers), 'writer')}"
    console.print(f"{checked} in {printable(where)}: {good}.")


def _state(writer: WriterReport) -> str | Text:
    return Text(writer.problem.what, "red") if writer.problem else "good" if writer.signed else "unsigned"
