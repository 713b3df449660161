"""`interlock audit export | prune`: write events to a file, and delete old ones from the store."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Annotated, Literal

import typer

from proxy.audit.event_store import Events
from proxy.audit.export_form import COLUMNS, csv_cells, exported
from proxy.audit.open_archive import open_folder
from proxy.audit.open_events import open_events
from proxy.audit.pipeline import destination, open_signer
from proxy.audit.reader import open_audit
from proxy.audit.retention import Pruned
from proxy.audit.retention import prune as prune_store
from proxy.audit.signed_checkpoints import read_evidence
from proxy.commands.audit.archive import archiver
from proxy.commands.audit.filter import read_filter
from proxy.commands.audit.verify import EXIT_BAD, named_store, show_progress
from proxy.commands.options import AsJson, store_settings, takes, trail_settings
from proxy.commands.terminal import count, format_json, print_json_lines, print_note, printable
from proxy.commands.time_format import format_time, parse_time
from proxy.config import Settings
from proxy.core.event import Filter, LogEntry
from proxy.errors import ConfigError
from proxy.store.open_store import store_exists
from proxy.telemetry.cef import cef_line
from proxy.telemetry.cloudevents import cloud_event_line
from proxy.telemetry.exported_event import ExportedEvent, read_entry
from proxy.telemetry.ocsf import ocsf_line
from proxy.telemetry.syslog import syslog_line

type Form = Literal["jsonl", "csv", "ocsf", "cloudevents", "cef", "syslog"]

TIMEOUT = 3600.0  # seconds: counting and pruning go over the whole store
EXPORT_EPILOG = """
Examples:

  interlock audit export --output trail.jsonl

  interlock audit export --format csv --since 30d --tool transfer_funds > transfers.csv

  interlock audit export --format ocsf --decision deny --output denials.json
"""
LINES: dict[str, Callable[[ExportedEvent], str]] = {
    "ocsf": ocsf_line,
    "cloudevents": cloud_event_line,
    "cef": cef_line,
    "syslog": syslog_line,
}
PRUNE_EPILOG = "Example:  interlock audit prune --before 90d --yes"


@takes(read_filter, trail_settings)
def export(
    where: Filter,
    settings: Settings,
    *,
    output: Annotated[Path | None, typer.Option(help="The file to write; default: standard output.")] = None,
    form: Annotated[
        Form, typer.Option("--format", help="jsonl can be verified; the rest is for other systems.")
    ] = "jsonl",
    arguments: Annotated[
        bool, typer.Option("--arguments", help="Write arguments, masked, in ocsf, cloudevents, cef and syslog, too.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="How many events at most, the oldest.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --output: print the number of events as JSON. Without: as jsonl.")
    ] = False,
) -> None:
    """Write events out, oldest first: one a line, exactly as recorded (jsonl), or with columns (csv).

    For other systems: OCSF 1.8 (ocsf), CloudEvents 1.0 (cloudevents), Common Event Format (cef), RFC 5424 (syslog).

    `interlock audit verify --export FILE` checks a jsonl export of everything.
    """
    if as_json and output is None and form != "jsonl":
        raise ConfigError("--json without --output prints events as jsonl; leave out --format, or give --output")
    with _opened(output) as file:
        # Where the events themselves go to the terminal, a progress bar would be drawn among them.
        watched = sys.stderr.isatty() and not file.isatty()
        number = asyncio.run(
            _export(settings, where, limit, _writer(form, file, with_arguments=arguments), watched=watched)
        )
    if output is not None and as_json:
        print_json_lines([{"file": str(output), "events": number}])
    elif output is not None:
        print_note(f"{count(number, 'event')} in {printable(output)}")


@takes(store_settings)
def prune(
    settings: Settings,
    *,
    before: Annotated[str, typer.Option(help="Delete what is older: an age (90d) or a time (2026-01-31).")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    checkpoints: Annotated[
        list[Path] | None, typer.Option(help="Files of checkpoints; default: the one of the settings.")
    ] = None,
    public_key: Annotated[
        list[Path] | None, typer.Option(help="Public keys to trust (PEM); default: those of the state folder.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Do not verify what is to be deleted.")] = False,
    archive: Annotated[
        str | None, typer.Option(help="Write it as Parquet first: a folder, or a URL such as s3://bucket/archive.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Delete old events from the store: of each writer those before its first one that is young enough to stay.

    They are verified first, those of other machines too: a writer whose events are not what was written keeps them
    (exit code 1), and nothing is deleted as long as one writer has no checkpoint that vouches for it. Where each
    chain begins afterwards is signed, so the rest still verifies. What is still in the local logs is left there.

    With --archive nothing is deleted before it was written as Parquet and read back.
    """
    moment = parse_time(before, "--before", time.time())
    if not store_exists(settings.postgres, settings.state_dir):
        raise ConfigError(f"there is no store in {settings.state_dir}; give --state-dir or --database-url")
    if not yes:
        _confirm(settings, moment)
    done = asyncio.run(_prune(settings, moment, checkpoints or (), public_key or (), archive, force=force))
    if as_json:
        problems = [asdict(problem) for problem in done.problems]
        result = {"store": destination(settings), "before": moment, "pruned": done.gone, "problems": problems}
        print_json_lines([result])
    else:
        gone = f"{count(done.gone, 'event')} from before {format_time(moment)} UTC"
        typer.echo(f"Deleted {gone} from {named_store(settings)}.")
        for problem in done.problems:
            print_note(
                f"KEPT: the events of writer {printable(problem.writer)} are not what they were (event {problem.seq}: "
                f"{problem.what}); see `interlock audit verify`, and prune with --force to let them go all the same."
            )
    if done.problems:
        raise typer.Exit(EXIT_BAD)


async def _export(
    settings: Settings, where: Filter, limit: int | None, write: Callable[[LogEntry], None], *, watched: bool
) -> int:
    number = 0
    async with open_audit(settings.postgres, settings.state_dir, store_timeout=TIMEOUT) as audit:
        total = await audit.count(where) if watched else None
        with show_progress("exporting", min(total, limit or total) if total else None, watched=watched) as progress:
            async for entry in audit.entries(where):
                if number == limit:
                    break
                write(entry)
                number += 1
                progress(1)
    return number


async def _prune(
    settings: Settings,
    before: float,
    files: Sequence[Path],
    keys: Sequence[Path],
    archive: str | None,
    *,
    force: bool,
) -> Pruned:
    folder = None if archive is None else open_folder(archive)
    async with _store(settings) as store:
        try:
            # Without checkpoints nothing is verified: --force is for a chain that is known to be broken.
            signed = {} if force else (await read_evidence(settings, store, files, keys)).evidence.writers
        except ConfigError as error:
            raise ConfigError(f"nothing was pruned: {error}") from error
        with show_progress("pruning", None, watched=sys.stderr.isatty()) as progress:
            signer = open_signer(settings)
            keep = None if folder is None else archiver(settings, store, folder)
            return await prune_store(store, before, signer, signed=signed, force=force, archive=keep, progress=progress)


def _confirm(settings: Settings, before: float) -> None:
    async def matching() -> int:
        async with _store(settings) as store:
            return await store.count(Filter(until=before))

    what = f"{count(asyncio.run(matching()), 'event')} from before {format_time(before)} UTC"
    typer.confirm(f"Delete {what} from {named_store(settings)} permanently?", abort=True, err=True)


@contextlib.asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Events]:
    store = open_events(settings.postgres, settings.state_dir, timeout=TIMEOUT)
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    """Yield where to write: standard output, or a file that appears once it is whole."""
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    # Beside its final name, so that the rename stays on one file system. mkstemp makes it readable by its owner only.
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _writer(form: Form, file: IO[str], *, with_arguments: bool) -> Callable[[LogEntry], None]:
    if form == "jsonl":
        return lambda entry: print(format_json(exported(entry)), file=file)
    if form != "csv":
        line = LINES[form]
        return lambda entry: print(line(_read(entry, with_arguments=with_arguments)), file=file)
    rows = csv.writer(file)
    rows.writerow(COLUMNS)
    return lambda entry: rows.writerow(csv_cells(entry))


def _read(entry: LogEntry, *, with_arguments: bool) -> ExportedEvent:
    try:
        return read_entry(entry, with_arguments=with_arguments)
    except ValueError as error:
        where = f"writer {printable(entry.writer or '?')}, event {entry.seq}"
        raise ConfigError(f"{where}: {error}; run `interlock audit verify`, or export it as jsonl") from error
