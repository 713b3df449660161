"""`interlock audit archive`: write events of the store as Parquet files that can be verified."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from proxy.audit.chain_reader import StoreChains
from proxy.audit.event_store import Events
from proxy.audit.open_archive import open_folder
from proxy.audit.open_events import open_events
from proxy.audit.signed_checkpoints import valid_checkpoints
from proxy.commands.audit.verify import show_progress
from proxy.commands.options import AsJson, store_settings, takes
from proxy.commands.terminal import count, print_json_lines, print_note, printable
from proxy.commands.time_format import parse_time
from proxy.config import Settings
from proxy.core.event import Head
from proxy.errors import ConfigError
from proxy.store.open_store import store_exists

if TYPE_CHECKING:
    from proxy.audit.archive import Archived
    from proxy.sinks.parquet_files import ParquetFolder

TIMEOUT = 3600.0
EPILOG = """
Examples:

  interlock audit archive --to /mnt/archive

  interlock audit archive --to s3://bucket/archive --before 30d
"""


@takes(store_settings)
def archive(
    settings: Settings,
    *,
    to: Annotated[str, typer.Option(help="A folder, or a URL such as s3://bucket/archive.")],
    before: Annotated[str | None, typer.Option(help="Only what is older: an age (30d) or a time (2026-01-31).")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the store's events as Parquet files with a manifest, and delete nothing.

    Of each writer the beginning of its chain is written, up to its first event that is not older. Each file is read
    back. `interlock audit verify --archive` verifies it; `interlock audit prune --archive` archives and then deletes.
    """
    moment = time.time() + 1 if before is None else parse_time(before, "--before", time.time())
    if not store_exists(settings.postgres, settings.state_dir):
        raise ConfigError(f"there is no store in {settings.state_dir}; give --state-dir or --database-url")
    done = asyncio.run(_archive(settings, moment, open_folder(to)))
    if as_json:
        print_json_lines([{"archive": to, **asdict(done)}])
    else:
        what = f"{count(done.events, 'event')} in {count(done.files, 'file')} ({done.bytes} bytes)"
        print_note(f"{what} in {printable(to)}; manifest {done.manifest}")


async def _archive(settings: Settings, before: float, folder: ParquetFolder) -> Archived:
    from proxy.audit.archive import write_archive  # noqa: PLC0415  needs pyarrow

    store = open_events(settings.postgres, settings.state_dir, timeout=TIMEOUT)
    try:
        chains = StoreChains(store)
        ends = [await chains.last_old(writer, before, before, None) for writer in await chains.heads()]
        heads = [head for head in ends if head is not None]
        with show_progress("archiving", None, watched=sys.stderr.isatty()) as progress:
            return await write_archive(chains, heads, folder, time.time(), _lines(settings, heads), progress)
    finally:
        await store.close()


def archiver(settings: Settings, store: Events, folder: ParquetFolder) -> Callable[[Sequence[Head]], Awaitable[object]]:
    """Return what archives chains up to their heads before they are pruned."""
    from proxy.audit.archive import write_archive  # noqa: PLC0415  needs pyarrow

    async def write(heads: Sequence[Head]) -> object:
        return await write_archive(StoreChains(store), heads, folder, time.time(), _lines(settings, heads))

    return write


def _lines(settings: Settings, heads: Sequence[Head]) -> list[str]:
    """Return the checkpoints of these chains, up to their heads."""
    upto = {head.writer: head.seq for head in heads}
    return [one.line() for one in valid_checkpoints(settings) if one.seq <= upto.get(one.writer, 0)]
