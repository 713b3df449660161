"""Ways to a Postgres: one that counts round trips, PgBouncer in between, and a server of Debian's with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import trustme

from tests.support.harness import free_port
from tests.support.timeouts import PATIENCE

READY = b"Z\x00\x00\x00\x05"  # ReadyForQuery: the server has answered, and waits
DEBIAN = Path("/usr/lib/postgresql/15/bin")


class RoundTrips:
    """How often a server has answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.count = 0


@contextlib.asynccontextmanager
async def counting(url: str) -> AsyncIterator[RoundTrips]:
    """Pass everything to the Postgres at a URL of a unix socket, and count."""
    parts, folder = urlsplit(url), tempfile.TemporaryDirectory(prefix="interlock-count-")
    trips = RoundTrips(parts._replace(query=f"host={folder.name}").geturl())

    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool) -> None:
        while data := await reader.read(1 << 16):
            trips.count += data.count(READY) if counts else 0
            writer.write(data)
        writer.close()

    async def serve(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_unix_connection(f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432")
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(passing(client, to_server, counts=False), passing(server, to_client, counts=True))

    async with await asyncio.start_unix_server(serve, Path(folder.name) / ".s.PGSQL.5432"):
        yield trips
    folder.cleanup()


def _as(owner: tuple[int, int]) -> dict[str, int]:
    """Return what runs a program as a user: neither server runs as root."""
    return {"user": owner[0], "group": owner[1]} if os.geteuid() == 0 else {}


def _postgres_user() -> tuple[int, int]:
    found = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    return found.pw_uid, found.pw_gid


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        if not (DEBIAN / "pg_isready").exists():
            return True
        asked = [DEBIAN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        return subprocess.run(asked, check=False, timeout=PATIENCE).returncode == 0
    return False


def _wait_for(port: int, started: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        if _answers(port):
            return
        assert started.poll() is None, started.args
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def running(program: Sequence[str | Path], port: int, owner: tuple[int, int]) -> Iterator[int]:
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_as(owner)) as started:  # type: ignore[call-overload]
        try:
            _wait_for(port, started)
            yield started.pid
        finally:
            started.terminate()
            started.wait(PATIENCE)


def _own(folder: Path, owner: tuple[int, int]) -> None:
    """Give a folder, and what is in it, to the user that runs a server."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *owner)


@contextlib.contextmanager
def pgbouncer(url: str, more: str = "", pids: list[int] | None = None) -> Iterator[str]:
    """Run PgBouncer with transaction pooling in front of the Postgres at a URL of a unix socket; yield its URL.

    `pids` gets the process's number.
    """
    parts, port = urlsplit(url), free_port()
    with tempfile.TemporaryDirectory(prefix="interlock-bouncer-") as name:
        folder = Path(name)
        (folder / "users.txt").write_text('"postgres" ""\n')
        (folder / "bouncer.ini").write_text(
            f"[databases]\n* = host={parse_qs(parts.query)['host'][0]} port=5432\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
            f"unix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users.txt\n"
            f"pool_mode = transaction\ndefault_pool_size = 3\n{more}\n"
        )
        owner = Path(parse_qs(parts.query)["host"][0]).stat()
        _own(folder, (owner.st_uid, owner.st_gid))  # who may reach the socket
        program = [shutil.which("pgbouncer") or "pgbouncer", folder / "bouncer.ini"]
        with running(program, port, (owner.st_uid, owner.st_gid)) as pid:
            if pids is not None:
                pids.append(pid)
            yield f"postgresql://postgres@127.0.0.1:{port}{parts.path}"


@contextlib.contextmanager
def tls_postgres(authority: trustme.CA) -> Iterator[int]:
    """Run Debian's Postgres, which takes nothing but TLS for `localhost`; yield its port."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="interlock-tls-pg-") as name:
        folder = Path(name)
        certificate = authority.issue_cert("localhost")
        certificate.cert_chain_pems[0].write_to_path(folder / "server.crt")
        certificate.private_key_pem.write_to_path(folder / "server.key")
        (folder / "server.key").chmod(0o600)
        owner = _postgres_user()
        _own(folder, owner)
        data = folder / "data"
        made = [DEBIAN / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
        subprocess.run(made, check=True, capture_output=True, timeout=PATIENCE, **_as(owner))  # type: ignore[call-overload]
        (data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\n")
        options = {
            "ssl": "on",
            "ssl_cert_file": f"{folder}/server.crt",
            "ssl_key_file": f"{folder}/server.key",
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "fsync": "off",
        }
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with running([DEBIAN / "postgres", "-D", data, *flags], port, owner):
            yield port
