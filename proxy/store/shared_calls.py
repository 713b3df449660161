"""The board that workers of one proxy share: calls that another may see the answer to, and ids that are in use.

A SQLite file that nothing waits for the disk for: it is made anew at each start, and what it holds ends with the
proxy. An id is claimed by a lock on one byte of a file, which goes by itself with the worker that holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
from typing import TYPE_CHECKING, Any, Final

import apsw
import structlog

from proxy.errors import SharedCallsUnavailableError
from proxy.gate.in_flight_json import from_json, to_json
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from proxy.core.model import Context, InFlightCall, MessageId

log = structlog.get_logger("interlock.board")

FOLDER: Final = "board"  # in the state folder
MAX_CALLS: Final = 50_000
MAX_ENDPOINTS: Final = 5_000
PRUNE_EVERY: Final = 500
BUSY_MS: Final = 2_000

_POST: Final = (
    "INSERT INTO calls (call_id, server, session, id, is_open, body) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (call_id) DO UPDATE SET body = excluded.body"
)
_FIND: Final = (
    "SELECT body, is_open FROM calls WHERE server = ? AND session = ? AND id = ? ORDER BY number DESC LIMIT 1"
)
_OPEN: Final = "SELECT body, is_open FROM calls WHERE server = ? AND session = ? AND is_open ORDER BY number"


def make_board(state_dir: Path) -> Path:
    """Make an empty board, in place of one that was left; return its folder. Raises BoardUnavailableError."""
    folder = state_dir / FOLDER
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        (folder / "claims").touch(0o600)
        (folder / "board.db").touch(0o600)
        with contextlib.closing(apsw.Connection(str(folder / "board.db"))) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute((sql_dir() / "board.sql").read_text())
    except (apsw.Error, OSError) as error:
        raise SharedCallsUnavailableError(f"what workers share cannot be made at {folder}: {error}") from error
    return folder


class SharedCalls:
    """One worker's way to the board; implements `roles.Board`. Threads may use it. Open it after the fork."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._posted = 0
        self._endpoints: set[tuple[str, str]] = set()
        try:
            self._claims = os.open(folder / "claims", os.O_RDWR | os.O_CLOEXEC)
            self._connection = apsw.Connection(str(folder / "board.db"), flags=apsw.SQLITE_OPEN_READWRITE)
            self._connection.set_busy_timeout(BUSY_MS)
            self._connection.execute("PRAGMA synchronous=OFF")
        except (apsw.Error, OSError) as error:
            raise SharedCallsUnavailableError(f"what workers share cannot be read at {folder}: {error}") from error

    def claim(self, context: Context, message_id: MessageId) -> bool:
        """Take an id of a session; whether no other worker has it. It ends with `release`, or with this worker."""
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(context, message_id))
        except BlockingIOError:
            return False
        except OSError as error:
            raise SharedCallsUnavailableError(f"no id can be claimed: {error}") from error
        return True

    def release(self, context: Context, message_id: MessageId) -> None:
        """Let an id go."""
        with contextlib.suppress(OSError):
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _place(context, message_id))

    def post(self, in_flight: InFlightCall) -> None:
        """Show a call to the other workers, or what is new of it."""
        context = in_flight.context
        key = (context.server, context.session, _spell(in_flight.message.id))
        self._do(_POST, in_flight.call_id, *key, not in_flight.closed, to_json(in_flight))
        self._posted += 1
        if self._posted % PRUNE_EVERY == 0:
            self._do("DELETE FROM calls WHERE number <= (SELECT max(number) FROM calls) - ?", MAX_CALLS)

    def find(self, context: Context, message_id: MessageId) -> InFlightCall | None:
        """Return the call of a session that an answer of this id belongs to, if any worker showed one."""
        rows = self._do(_FIND, context.server, context.session, _spell(message_id))
        return _read(rows)[0] if rows else None

    def of_session(self, context: Context) -> list[InFlightCall]:
        """Return the calls of a session that no answer was seen to."""
        return _read(self._do(_OPEN, context.server, context.session))

    def end(self, call_id: str) -> bool:
        """Take a call for ended; return whether this worker is the one that ended it."""
        return bool(self._do("UPDATE calls SET is_open = 0 WHERE call_id = ? AND is_open RETURNING 1", call_id))

    def ended(self, call_ids: Iterable[str]) -> set[str]:
        """Say which of these calls have ended, or are forgotten."""
        wanted = list(call_ids)
        rows = self._do(
            "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT call_id FROM calls WHERE is_open)",
            json.dumps(wanted),
        )
        return {row[0] for row in rows}

    def add_endpoint(self, server: str, path: str) -> None:
        """Keep where a legacy server takes messages."""
        if (server, path) not in self._endpoints:
            bound = "SELECT ?, ? WHERE (SELECT count(*) FROM endpoints) < ?"
            self._do(f"INSERT INTO endpoints {bound} ON CONFLICT DO NOTHING", server, path, MAX_ENDPOINTS)

    def is_endpoint(self, server: str, path: str) -> bool:
        """Return whether a legacy server takes messages there, as any worker has seen."""
        known = (server, path) in self._endpoints
        if not known and self._do("SELECT 1 FROM endpoints WHERE server = ? AND path = ?", server, path):
            self._endpoints.add((server, path))
            known = True
        return known

    def close(self) -> None:
        """Let the board go."""
        self._connection.close()
        os.close(self._claims)

    def _do(self, statement: str, *values: Any) -> list[Any]:
        try:
            with self._lock:
                rows: list[Any] = self._connection.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise SharedCallsUnavailableError(f"what workers share cannot be used: {error}") from error
        return rows


def _read(rows: list[Any]) -> list[InFlightCall]:
    try:
        return [from_json(body, is_open=bool(is_open)) for body, is_open in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise SharedCallsUnavailableError(f"a call that was passed on cannot be read: {error!r}") from error


def _spell(message_id: MessageId | None) -> str:
    return json.dumps(message_id)  # 1 and "1" are two ids


def _place(context: Context, message_id: MessageId) -> int:
    key = json.dumps([context.server, context.session, message_id]).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> 2  # a file's offsets have 63 bits
