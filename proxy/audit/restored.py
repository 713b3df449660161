"""Finds that a log goes on from where it was long ago, before anything is written to it, and begins a new writer then.

A state folder that was put back from a backup, or copied, would give numbers a second time: two histories of one
writer, of which the store could keep only one. What was signed of the writer tells: in the checkpoint file, in second
places and in the store. And a file that was copied is another file than the one that its log was begun in. Where a
shared store cannot be asked, a new writer begins too: to go on could make a second history that no store would take.
One that began so, and of which nothing was shipped, goes on at the next start: a crash loop makes one log, not many.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uuid_utils

from proxy.audit import local_log_sql
from proxy.audit.checkpoints import read_lines
from proxy.audit.local_log_files import DaemonLog, RunLog, open_reader
from proxy.audit.pipeline import checkpoint_copies, checkpoint_file
from proxy.audit.signing_keys import AuditKeys
from proxy.audit.writers import WriterRegistry, contradiction
from proxy.errors import InterlockError, SchemaError
from proxy.store.open_store import open_database, store_exists
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.config import Settings

log = structlog.get_logger("interlock.log")

ASK_SECONDS = 3.0
SIDES = ("", "-wal", "-shm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def open_daemon_log(settings: Settings, worker: int = 1) -> DaemonLog:
    """Open the log of a worker, as a new writer where it was put back. Raises AuditUnavailableError."""
    limit, before = settings.audit_log_limit, partial(renew_if_restored, settings)
    opened = DaemonLog(settings.state_dir, max_bytes=limit, worker=worker, before=before)
    note_place(opened.path)
    return opened


def open_run_log(settings: Settings, *, asks: bool = True) -> RunLog:
    """Open the log of a run, as a new writer where it was put back. Without `asks`, only its file is looked at."""
    limit, before = settings.audit_log_limit, partial(renew_if_restored, settings, asks=asks)
    opened = RunLog(settings.state_dir, max_bytes=limit, before=before)
    note_place(opened.path)
    return opened


def renew_if_restored(settings: Settings, path: Path, *, asks: bool = True) -> Path | None:
    """Move a log aside that was put back, so that a new writer begins; return where it is now. Its lock must be held.

    What is in it is shipped from there: the store ignores the events that it has. Never raises for a place that cannot
    be asked.
    """
    why = unasked = None
    if path.exists():
        with contextlib.suppress(InterlockError):
            why = _copied(path)
            if why is None and asks:
                why, unasked = _contradicted(settings, path)
    if why is None and (unasked is None or _began_unasked(path)):
        return None
    why = why or unasked
    aside = path.with_name(f"restored-{uuid_utils.uuid7()}.db")
    log.warning("a new writer begins; the events of the old log are shipped", log=str(path), why=why, kept=str(aside))
    for end in SIDES:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(f"{path.name}{end}").rename(aside.with_name(f"{aside.name}{end}"))
    _place(path).unlink(missing_ok=True)
    _note_unasked(path, began=unasked is not None)
    return aside


def note_place(path: Path) -> None:
    """Note which file a log is, so that a copy of it is known as one."""
    if not _place(path).exists():
        write_private(_place(path), f"{path.stat().st_ino}\n".encode())


def _place(path: Path) -> Path:
    return path.with_suffix(".place")


def _copied(path: Path) -> str | None:
    try:
        noted = _place(path).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return None if noted == str(path.stat().st_ino) else "it is a copy of the file that it was begun in"


def _note_unasked(path: Path, *, began: bool) -> None:
    """Note that the log that begins now does so because the store could not be asked, and until when that counts."""
    path.with_suffix(".unasked").unlink(missing_ok=True)
    if began and (boot := _boot_id()) is not None:
        write_private(path.with_suffix(".unasked"), boot)


def _began_unasked(path: Path) -> bool:
    """Return whether a log began since the system did, while the store could not be asked, and nothing was shipped.

    No store has anything of its writer then, so nothing can contradict it. After a reboot the disk may be another one.
    """
    try:
        noted = path.with_suffix(".unasked").read_bytes()
    except OSError:
        return False
    if noted != _boot_id():
        return False
    with open_reader(path) as connection:
        state = local_log_sql.read_state(connection)
    return state is not None and state.moved == 0


def _boot_id() -> bytes | None:
    try:
        return BOOT_ID.read_bytes()
    except OSError:
        return None  # not Linux: a new log at each start


def _contradicted(settings: Settings, path: Path) -> tuple[str | None, str | None]:
    """Return why a log is not current, if so, and why a shared store could not be asked, if so."""
    with open_reader(path) as connection:
        if local_log_sql.read_state(connection) is None:
            return None, None
        head = local_log_sql.read_head(connection)
        lines, unasked = _known_lines(settings, head.writer, head.seq)
        keys = AuditKeys(settings.state_dir).public()
        return contradiction(lines, keys, head, lambda seq: local_log_sql.read_link(connection, seq)), unasked


def _known_lines(settings: Settings, writer: str, seq: int) -> tuple[list[bytes], str | None]:
    """Return what was signed of a writer, and why a shared store could not be asked, if so."""
    file = checkpoint_file(settings)
    places: list[Callable[[], list[bytes]]] = [place.lines for place in checkpoint_copies(settings)]
    if file.exists():
        places.append(lambda: read_lines(file))
    if not settings.postgres and store_exists(None, settings.state_dir):
        places.append(lambda: _stored_lines(settings, writer, seq))
    found: list[bytes] = []
    unasked = None
    for lines in places:
        try:
            found += [line for line in lines() if writer.encode() in line]
        except InterlockError as error:
            log.warning("a place of checkpoints cannot be asked whether the state folder is current", error=str(error))
    if settings.postgres:
        try:
            found += _stored_lines(settings, writer, seq)
        except SchemaError:
            pass  # nothing starts on it; and the shipper asks again before it ships
        except InterlockError as error:
            unasked = f"the store cannot be asked whether it goes on from its last event ({error})"
    return found, unasked


def _stored_lines(settings: Settings, writer: str, seq: int) -> list[bytes]:
    async def ask() -> list[bytes]:
        database = open_database(settings.postgres, settings.state_dir, timeout=ASK_SECONDS)
        try:
            return await WriterRegistry(database).lines_of(writer, seq)
        finally:
            await database.close()

    # In a thread: the caller's may run an event loop already.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(ask())).result()
