"""Checks of the audit trail: the backlog, the checkpoints, and the store."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.audit.backlog import read_backlog_untouched, stored_version
from proxy.audit.pipeline import checkpoint_file
from proxy.audit.rekor_client import RekorClient
from proxy.audit.rekor_entry import LogKey
from proxy.audit.transparency_feed import log_key
from proxy.doctor.findings import CheckResult, fail, ok, warn
from proxy.errors import InterlockError, StoreUnavailableError
from proxy.store.migrate import migrations
from proxy.store.sqlite import STORE_FILE, check_version
from proxy.system.database_url import unprotected_host
from proxy.system.terminal_text import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.config import Settings

LATE_SECONDS = 300.0
SKEW_SECONDS = 5.0
OLDEST_POSTGRES = 15


def backlog(settings: Settings) -> Iterator[CheckResult]:
    # Read without opening for writing: a doctor run by root must not leave files that the proxy cannot write.
    waiting = read_backlog_untouched(settings.state_dir, time.time())
    said = f"{count(waiting.events, 'event')} {'waits' if waiting.events == 1 else 'wait'} for the store"
    for problem in waiting.problems:
        yield fail("audit log", problem, "repair the store; the events stay in the local log until then")
    if waiting.rejected:
        mend = "find them in the table `rejected` of their log (docs/audit.md)"
        yield warn("audit log", f"the store refused {count(waiting.rejected, 'event')}, now set aside", mend)
    if waiting.lag_seconds is not None and waiting.lag_seconds > LATE_SECONDS:
        said += f", the oldest for {waiting.lag_seconds:.0f} s"
        yield warn("audit log", said, "start the proxy, which moves them; if it runs, read its log")
    elif not waiting.problems:
        yield ok("audit log", said)


def checkpoints(settings: Settings) -> Iterator[CheckResult]:
    file = checkpoint_file(settings)
    folder = next((parent for parent in file.absolute().parents if parent.is_dir()), Path("/"))
    if not os.access(file if file.exists() else folder, os.W_OK):
        yield fail("checkpoints", f"{file} cannot be written", "set checkpoint_file, or change permissions")
        return
    command = shlex.split(settings.checkpoint_command or "")
    if command and shutil.which(command[0]) is None:
        yield fail("checkpoints", f"there is no program {command[0]!r}", "correct checkpoint_command")
    elif command:
        yield ok("checkpoints", f"they go to {file} and to {command[0]}")
    elif others := [*settings.checkpoint_copies, *filter(None, [settings.transparency_log])]:
        yield ok("checkpoints", f"they go to {file} and to {count(len(others), 'other place')}")
    else:
        mend = (
            "send them elsewhere, for example with checkpoint_copies: their key is in the state folder (docs/audit.md)"
        )
        yield warn("checkpoints", f"they go to {file} only", mend)


def transparency(settings: Settings) -> Iterator[CheckResult]:
    """Ask the transparency log of the settings for its key and its size; nothing is posted."""
    name, url = "transparency log", settings.transparency_log
    if url is None:
        return
    mend = "correct transparency_log or transparency_key; checkpoints are posted later, and no call waits for that"
    try:
        expected, client = log_key(settings), RekorClient(url)
        found = LogKey.parse(client.public_key())
        if found.log_id != expected.log_id:
            said = f"{url} signs with key {found.log_id[:16]}, and transparency_key is {expected.log_id[:16]}"
            yield fail(name, said, "ask the log's operator which key is right, and do not take it from the log itself")
            return
        yield ok(name, f"{url} signs with the key of transparency_key, and has a tree of {client.size()}")
    except (InterlockError, ValueError) as error:
        yield fail(name, str(error), mend)


def database(settings: Settings) -> Iterator[CheckResult]:
    if settings.postgres is None:
        yield _embedded(settings.state_dir / STORE_FILE)
        return
    try:
        yield from asyncio.run(_postgres(settings.postgres))
    except StoreUnavailableError as error:
        yield fail("database", str(error), "check that it runs and that database_url is right: `interlock db status`")


def _embedded(path: Path) -> CheckResult:
    known = len(migrations("sqlite"))
    try:
        version = stored_version(path)
        check_version(path, version or 0, known)
    except InterlockError as error:
        return fail("database", str(error), "restore the file from a backup, or move it away: a new one is created")
    if version is None:
        return ok("database", f"{path} does not exist yet; it is created at first use")
    state = "up to date" if version == known else "migrated at its next use"
    return ok("database", f"{path}, schema {version} of {known}: {state}")


async def _postgres(url: str) -> list[CheckResult]:
    from proxy.doctor.postgres import inspect_database  # noqa: PLC0415  the driver is only needed with Postgres

    seen = await inspect_database(url)
    found = [ok("database", f"{seen.where} answers, Postgres {seen.version}")]
    if host := unprotected_host(url):
        mend = "add sslmode=verify-full to database_url, with sslrootcert=FILE or sslrootcert=system"
        found.append(warn("database TLS", f"the connection to {host} may be in plain text, or to somebody else", mend))
    if seen.major < OLDEST_POSTGRES:
        found = [fail("database", f"{seen.where} is Postgres {seen.version}", f"use {OLDEST_POSTGRES} or newer")]
    if seen.problem:
        return [*found, fail("schema", seen.problem, "run `interlock db migrate` with the login that owns the tables")]
    found.append(ok("schema", f"up to date, {seen.migrations} migrations"))
    if not seen.may_insert:
        mend = f"as the owner: GRANT interlock_writer TO {seen.user}"
        found.append(fail("role", f"{seen.user} may not insert events", mend))
    # Enough to work, but then a stolen login can rewrite history: the audit trail should be append-only for proxies.
    elif seen.may_change:
        mend = "give proxies a login with only interlock_writer (docs/store.md), which cannot change events"
        found.append(warn("role", f"{seen.user} may change and delete events", mend))
    else:
        found.append(ok("role", f"{seen.user} may add events but not change them"))
    if not seen.has_tomorrow:
        mend = "keep a proxy running, or run `interlock db migrate`"
        found.append(warn("partitions", "there is no partition for tomorrow", mend))
    skew = f"the database's clock is {seen.skew:+.1f} s off ours"
    if abs(seen.skew) > max(SKEW_SECONDS, seen.delay):
        mend = "use NTP on both: commit tokens and retention depend on the clocks"
        found.append(warn("database clock", skew, mend))
    else:
        found.append(ok("database clock", skew))
    return found
