"""ClickHouse for tests: chdb's engine behind as much of ClickHouse's HTTP interface as the real client uses.

It is the real engine (the table engines, the SQL, the formats) in a process of its own, which can be killed; it is not
ClickHouse's server: no users, no replication, and one query at a time.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.timeouts import PATIENCE

# Settings that a client gives as parameters, and that are passed on with an INSERT.
SETTINGS = ("async_insert", "throw_on_max_partitions_per_insert_block")


class ClickHouseServer:
    """A server on loopback. Use it as a context; `halt` kills it, `start` starts it on the same data and port."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-ch-"))
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.support.clickhouse_server", str(self.folder / "data"), str(self.port)]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self.folder / "log").read_text()[-2000:]
        self.port = int(line)
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                assert self.query("SELECT 1") == "1\n"
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def halt(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def query(self, sql: str, form: str = "TabSeparated") -> str:
        request = urllib.request.Request(f"{self.url}/?default_format={form}", data=sql.encode())
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return bytes(answer.read()).decode()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    session: ClassVar[Any] = None
    lock: ClassVar[threading.Lock] = threading.Lock()

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunks()
        self._answer(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, body: bytes) -> None:
        given = {
            name: values[0] for name, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()
        }
        query = given.get("query", "")
        wanted = [f"{name} = {int(given[name])}" for name in SETTINGS if name in given]
        text = f"{query}\n{body.decode()}" if query and body else query or body.decode()
        if text.startswith("INSERT") and wanted:
            text = text.replace(" FORMAT ", f" SETTINGS {', '.join(wanted)} FORMAT ", 1)
        form = given.get("default_format") or self.headers.get("X-ClickHouse-Format") or "TabSeparated"
        try:
            with self.lock:
                found = self.session.query(text, form)
            status, answer = 200, bytes(found.bytes()) if found is not None else b""
        except Exception as error:  # noqa: BLE001  what a server answers with 500
            status, answer, form = 500, str(error).encode(), "text"
        self.send_response(status)
        code = answer.partition(b"Code: ")[2].partition(b".")[0].decode() if status == 500 else ""
        if code.isdecimal():
            self.send_header("X-ClickHouse-Exception-Code", code)
        self.send_header("X-ClickHouse-Format", form)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def serve(folder: str, port: int) -> None:
    import chdb.session  # large, and only for the server's process

    _Handler.session = chdb.session.Session(folder)
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    print(server.server_port, flush=True)  # noqa: T201  its parent reads it
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
