"""What the workers of one proxy share: calls whose response another worker may see, and message ids that are in use.

A SQLite file that never waits for the disk: it is made anew at each start, and what it holds ends with the proxy. An
id is claimed by a lock on one byte of a file, which the kernel releases when the worker that holds it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import shutil
import threading
from typing import TYPE_CHECKING, Any, Final

import apsw

from proxy.errors import SharedCallsUnavailableError
from proxy.gate.in_flight_json import from_json, to_json
from proxy.store.queries import Queries
from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from proxy.core.model import Context, InFlightCall, MessageId

SQL: Final = Queries("shared_calls")
FOLDER: Final = "shared-calls"  # in the state folder
MAX_CALLS: Final = 50_000
MAX_ENDPOINTS: Final = 5_000
MAX_ENDPOINTS_OF_AGENT: Final = 500
MAX_CREDENTIALS: Final = 20_000
PRUNE_EVERY: Final = 500
BUSY_MS: Final = 2_000
MAX_ABSENT: Final = 1_000  # paths that are known to be no endpoint
GENERATION_BYTES: Final = 16


def open_shared_calls(state_dir: Path, handed: str | None = None) -> Path:
    """Return the folder of what workers share: that of the proxy that this one takes over from, or a new one.

    A new one is empty, in place of any that were left. Raises SharedCallsUnavailableError.
    """
    schema = (sql_dir() / "shared_calls.sql").read_bytes()
    # Of another version, its tables may be others: then the two proxies share nothing while one of them drains.
    name = f"{FOLDER}-{hashlib.sha256(schema).hexdigest()[:8]}"
    folder = state_dir / name
    return folder if handed == name and folder.is_dir() else make_shared_calls(folder, keep=handed)


def make_shared_calls(folder: Path, keep: str | None = None) -> Path:
    """Make empty files in a folder, and remove all others but one; return it. Raises SharedCallsUnavailableError."""
    try:
        for left in folder.parent.glob(f"{FOLDER}*"):
            if left.name != keep:
                shutil.rmtree(left, ignore_errors=True)
        folder.mkdir(mode=0o700)
        (folder / "claims").touch(0o600)
        (folder / "generation").touch(0o600)
        (folder / "generation").write_bytes(bytes(GENERATION_BYTES))
        (folder / "calls.db").touch(0o600)
        with contextlib.closing(apsw.Connection(str(folder / "calls.db"))) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute((sql_dir() / "shared_calls.sql").read_text())
    except (apsw.Error, OSError) as error:
        raise SharedCallsUnavailableError(f"what workers share cannot be made at {folder}: {error}") from error
    return folder


class SharedCalls:
    """An `interfaces.SharedCalls` for one worker. Threads may use it. Open it after the fork."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._posted = 0
        self._credentials = 0  # the last one that was read
        self._endpoints: set[tuple[str, str]] = set()
        # Paths that were no endpoints in a generation. Replaced as one: threads may ask at the same time.
        self._absent: tuple[bytes, set[tuple[str, str]]] = b"", set()
        try:
            self._generation = _shared_bytes(folder / "generation")
            # After the fork: a process does not inherit record locks, and SQLite must not be used across a fork.
            self._claims = os.open(folder / "claims", os.O_RDWR | os.O_CLOEXEC)
            self._connection = apsw.Connection(str(folder / "calls.db"), flags=apsw.SQLITE_OPEN_READWRITE)
            self._connection.set_busy_timeout(BUSY_MS)
            self._connection.execute("PRAGMA synchronous=OFF")  # nothing here is worth an fsync: see above
        except (apsw.Error, OSError) as error:
            raise SharedCallsUnavailableError(f"what workers share cannot be read at {folder}: {error}") from error

    spans_replicas = False  # replica_calls.py does

    async def claim_afar(self, context: Context, message_id: MessageId) -> bool:  # noqa: ARG002
        return True

    def claim(self, context: Context, message_id: MessageId) -> bool:
        """Claim an id of a session until `release` or the end of this worker; return whether no other worker has it."""
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(context, message_id))
        except BlockingIOError:
            return False
        except OSError as error:
            raise SharedCallsUnavailableError(f"no id can be claimed: {error}") from error
        return True

    def release(self, context: Context, message_id: MessageId) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, _offset(context, message_id))

    def post(self, in_flight: InFlightCall) -> None:
        """Show a call to the other workers, or what has changed in it."""
        context = in_flight.context
        key = (context.server, context.session, _encode_id(in_flight.message.id))
        self._run(SQL["post_call"], in_flight.call_id, *key, not in_flight.closed, to_json(in_flight))
        self._posted += 1
        # Bounded, whatever servers and agents do: a call that never gets a response would else stay for ever.
        if self._posted % PRUNE_EVERY == 0:
            self._run(SQL["delete_old_calls"], MAX_CALLS)

    def find(self, context: Context, message_id: MessageId, *, near: bool = False) -> InFlightCall | None:  # noqa: ARG002
        rows = self._run(SQL["find_call"], context.server, context.session, _encode_id(message_id))
        return _read(rows)[0] if rows else None

    def of_session(self, context: Context) -> list[InFlightCall]:
        return _read(self._run(SQL["open_calls"], context.server, context.session))

    def end(self, call_id: str) -> bool:
        return bool(self._run(SQL["end_call"], call_id))

    def ended(self, call_ids: Iterable[str]) -> set[str]:
        """Return which of these calls have ended, or are not stored any more."""
        return {row[0] for row in self._run(SQL["ended_calls"], json.dumps(list(call_ids)))}

    def add_endpoint(self, server: str, path: str) -> None:
        if (server, path) not in self._endpoints:
            self._run(SQL["add_endpoint"], server, path, MAX_ENDPOINTS)
            # Behind the insert and before this returns: no client is told of an endpoint that some worker takes for
            # none. Random, so that two workers at once need no lock.
            self._generation[:] = os.urandom(GENERATION_BYTES)

    def is_endpoint(self, server: str, path: str) -> bool:
        endpoint = server, path
        if endpoint in self._endpoints:
            return True
        # Asked for every call, and nearly always no: that holds until some worker adds one.
        generation = self._generation[:]  # before the table is read: what is added meanwhile is looked for again
        since, absent = self._absent
        if generation != since or len(absent) >= MAX_ABSENT:
            absent = set()
            self._absent = generation, absent
        elif endpoint in absent:
            return False
        known = bool(self._run(SQL["find_endpoint"], server, path))
        (self._endpoints if known else absent).add(endpoint)
        return known

    def add_mcp_endpoint(self, server: str, path: str, agent: str) -> None:
        self._run(SQL["add_mcp_endpoint"], server, path, agent, MAX_ENDPOINTS_OF_AGENT, MAX_ENDPOINTS)

    def is_mcp_endpoint(self, server: str, path: str) -> bool:
        return bool(self._run(SQL["find_mcp_endpoint"], server, path))

    def own_credential(self, digest: str, owner: str) -> str:
        first: str = self._run(SQL["own_credential"], digest, owner)[0][0]
        self._run(SQL["delete_old_credentials"], MAX_CREDENTIALS)
        return first

    def new_credentials(self) -> list[tuple[str, str]]:
        rows = self._run(SQL["new_credentials"], self._credentials)
        if rows:
            self._credentials = rows[-1][0]
        return [(digest, owner) for _, digest, owner in rows]

    def close(self) -> None:
        self._connection.close()
        self._generation.close()
        os.close(self._claims)

    def _run(self, statement: str, *values: Any) -> list[Any]:
        try:
            with self._lock:
                rows: list[Any] = self._connection.execute(statement, values).fetchall()
        except apsw.Error as error:
            raise SharedCallsUnavailableError(f"what workers share cannot be used: {error}") from error
        return rows


def _shared_bytes(path: Path) -> mmap.mmap:
    """Map a file that workers read and write as memory. Raises OSError, also where it is too short."""
    with path.open("r+b") as file:
        try:
            return mmap.mmap(file.fileno(), GENERATION_BYTES)
        except ValueError as error:
            raise OSError(f"{path} is too short") from error


def _read(rows: list[Any]) -> list[InFlightCall]:
    try:
        return [from_json(body, is_open=bool(is_open)) for body, is_open in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise SharedCallsUnavailableError(f"a call of another worker cannot be read: {error!r}") from error


def _encode_id(message_id: MessageId | None) -> str:
    return json.dumps(message_id)  # 1 and "1" are two ids


def _offset(context: Context, message_id: MessageId) -> int:
    key = json.dumps([context.server, context.session, message_id]).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> 2  # a file's offsets have 63 bits
