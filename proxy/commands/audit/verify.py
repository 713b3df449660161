"""`interlock audit verify | schema | rotate-key`: prove that the trail is what was written."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from proxy.audit.chain_reader import Chains, ExportedChains
from proxy.audit.event_schema import json_schema
from proxy.audit.open_archive import open_folder
from proxy.audit.pipeline import destination
from proxy.audit.reader import open_audit
from proxy.audit.signed_checkpoints import Found, Proofs, read_checkpoints, read_evidence
from proxy.audit.signing_keys import AuditKeys
from proxy.audit.stretch_pool import open_pool
from proxy.audit.verified import read_verified, write_verified
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
from proxy.commands.time_format import format_time, parse_time
from proxy.config import Settings
from proxy.core.event import Head
from proxy.errors import ConfigError
from proxy.store.sqlite import STORE_FILE

EXIT_BAD = 1
EXIT_UNPROVEN = 3
EPILOG = """
Examples:

  interlock audit verify

  interlock audit verify --since last

  interlock audit verify --archive s3://bucket/archive

  interlock audit verify --export trail.jsonl --checkpoints /mnt/vault/checkpoints.jsonl --public-key vault.pem
"""


@takes(store_settings)
def verify(
    settings: Settings,
    *,
    export: Annotated[Path | None, typer.Option(help="Verify a file that `audit export` made instead.")] = None,
    archive: Annotated[
        str | None, typer.Option(help="Verify an archive that `audit archive` or `prune --archive` made instead.")
    ] = None,
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
    since: Annotated[
        str | None,
        typer.Option(
            help="Read only what was written since: an age (1d), a time, or last (what this command verified before "
            "is not read again). It begins at a signed checkpoint."
        ),
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="Only what is still in the local logs.")] = False,
    transparency: Annotated[
        list[Path] | None,
        typer.Option(help="Files with proofs of a transparency log; default: the one of the state folder."),
    ] = None,
    log_key: Annotated[
        list[Path] | None, typer.Option(help="Public keys of these logs (PEM); default: that of the settings.")
    ] = None,
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
    proofs = Proofs.chosen(settings, transparency or (), log_key or ()) if transparency or not checkpoints else None
    chosen = Chosen(export, tuple(checkpoints or ()), tuple(public_key or ()), until, since, local, proofs)
    if archive is not None:
        _verify_archive(settings, archive, chosen, as_json=as_json)
        return
    report, found = asyncio.run(_verify(settings, chosen))
    _tell(report, found, str(export) if export else named_store(settings), as_json=as_json)


def _tell(report: Report, found: Found, where: str, *, as_json: bool) -> None:
    """Print the result. Raises typer.Exit where it is not good."""
    if as_json:
        _print_json(report, found)
    else:
        _print(report, found, where)
    if report.problems or found.broken:
        raise typer.Exit(EXIT_BAD)
    if report.unsigned:
        raise typer.Exit(EXIT_UNPROVEN)


def _verify_archive(settings: Settings, place: str, chosen: Chosen, *, as_json: bool) -> None:
    folder = open_folder(place)
    from proxy.audit.archive import ArchivedChains  # noqa: PLC0415  needs pyarrow

    chains = ArchivedChains(folder)
    found = read_checkpoints(settings, chosen.files, chosen.keys, stored=chains.lines, proofs=chosen.proofs)
    evidence, anchors = chains.evidence(found.evidence)
    report = asyncio.run(verify_chains(chains, evidence, anchors=anchors))
    _tell(report, found, place, as_json=as_json)


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


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the command was asked to verify, and against what."""

    export: Path | None
    files: tuple[Path, ...]
    keys: tuple[Path, ...]
    until: float | None
    since: str | None
    local: bool
    proofs: Proofs | None


async def _verify(settings: Settings, chosen: Chosen) -> tuple[Report, Found]:
    async with open_audit(settings.postgres, settings.state_dir, local=chosen.local) as audit:
        # An export is read without the store: an auditor has the file and the keys alone.
        export = chosen.export
        chains: Chains = audit.chains() if export is None else ExportedChains(export)
        if not (export or chosen.local or audit.store or await chains.heads()):
            raise ConfigError(f"there is no audit trail in {settings.state_dir}; give --state-dir or --database-url")
        store = None if export or chosen.local else audit.store
        found = await read_evidence(settings, store, chosen.files, chosen.keys, chosen.until, chosen.proofs)
        anchors = _anchors(settings, found, chosen.since)
        total = expected(found.evidence.signed) - sum(head.seq for head in anchors.values())
        with (
            show_progress("verifying", max(0, total) or None, watched=sys.stderr.isatty()) as progress,
            open_pool(settings.postgres or settings.state_dir / STORE_FILE, total) as pool,
        ):
            fast = pool if store is not None else None
            report = await verify_chains(chains, found.evidence, progress, anchors=anchors, fast=fast)
        if export is None and not chosen.local:
            write_verified(settings.state_dir, report)
        return report, found


def _anchors(settings: Settings, found: Found, since: str | None) -> dict[str, Head]:
    """Return where to begin with each writer: at what was signed before `since`, or at what was verified before."""
    if since is None:
        return {}
    if since == "last":
        return read_verified(settings.state_dir)
    moment = parse_time(since, "--since", time.time())
    anchors = {writer: said.anchor(writer, moment) for writer, said in found.evidence.writers.items()}
    return {writer: head for writer, head in anchors.items() if head is not None}


@contextlib.contextmanager
def show_progress(what: str, total: int | None, *, watched: bool) -> Iterator[Callable[[int], None]]:
    """Draw a progress bar on standard error where somebody watches; yield the function that advances it."""
    count = (BarColumn(), MofNCompleteColumn()) if total else (SpinnerColumn(),)
    columns = (TextColumn(what), *count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not watched) as bar:
        task = bar.add_task(what, total=total)
        yield lambda number: bar.advance(task, number)


def _print_json(report: Report, found: Found) -> None:
    broken = found.broken
    problems = [asdict(problem) for problem in report.problems]
    summary = {"checked": report.checked, "problems": problems, "broken_checkpoints": len(broken)}
    print_json_lines({"kind": "writer", **asdict(writer)} for writer in report.writers)
    print_json_lines({"kind": "checkpoint", "problem": text} for text in broken)
    print_json_lines({"kind": "logged", "writer": name, **asdict(one)} for name, one in found.logged.items())
    print_json_lines([{"kind": "summary", **summary, "unsigned": report.unsigned}])


def _print(report: Report, found: Found, where: str) -> None:
    console = stdout_console()
    console.soft_wrap = True
    rows = [(printable(one.writer), one.checked, one.set_aside, one.proven, _state(one)) for one in report.writers]
    if rows:
        columns = ("writer", "events", "set aside", "proven to", "state")
        print_table(columns, rows, right=("events", "set aside", "proven to"))
    for problem in report.problems:
        name = f"event {problem.seq or ''} of writer {problem.writer or '?'} ({problem.event_id or 'no id'})"
        console.print(f"BAD: {printable(name)}: {problem.what}: {problem.detail}", style="bold red")
    for text in found.broken:
        console.print(f"BAD CHECKPOINT: {printable(text)}", style="bold red")
    if report.unsigned:
        unproven = f"{len(report.unsigned)} of {count(len(report.writers), 'writer')}"
        console.print(f"No checkpoint covers {unproven}: give their files with --checkpoints.")
    if found.unknown:
        console.print(f"{count(found.unknown, 'checkpoint')} of unknown keys count for nothing: give --public-key.")
    for name, one in found.logged.items():
        since = format_time(one.time)
        console.print(f"A transparency log has writer {printable(name)} up to event {one.seq}, since {since}.")
    if skipped := sum(one.after for one in report.writers):
        console.print(f"{count(skipped, 'event')} before --since were not read: a checkpoint vouches for them.")
    good = "all as they were written" if not report.problems else "up to the first bad one of each writer"
    checked = f"{count(report.checked, 'event')} of {count(len(report.writers), 'writer')}"
    console.print(f"{checked} in {printable(where)}: {good}.")


def _state(writer: WriterReport) -> str | Text:
    return Text(writer.problem.what, "red") if writer.problem else "good" if writer.signed else "unsigned"
