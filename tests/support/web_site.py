"""A web site on loopback with a page and a git repository, in a thread of the tests' own process."""

from __future__ import annotations

import contextlib
import functools
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.harness import Certificates
from tests.support.timeouts import PATIENCE

PAGE = "hello from the site\n"


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _git(*words: str, cwd: Path) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True, timeout=PATIENCE)


@contextlib.contextmanager
def start_site(folder: Path, certificates: Certificates | None = None) -> Iterator[int]:
    """Serve `hello.txt` and `repo.git`, which has it too; return the port."""
    work, root = folder / "work", folder / "root"
    for each in (work, root):
        each.mkdir(parents=True)
    for each in (work, root):
        (each / "hello.txt").write_text(PAGE)
    _git("init", "-q", ".", cwd=work)
    _git("add", ".", cwd=work)
    _git("commit", "-q", "-m", "Say hello", cwd=work)
    _git("clone", "-q", "--bare", str(work), str(root / "repo.git"), cwd=folder)
    _git("update-server-info", cwd=root / "repo.git")
    with _serve(root, certificates) as port:
        yield port


@contextlib.contextmanager
def start_page(folder: Path) -> Iterator[int]:
    """Serve `hello.txt` alone, in the clear; return the port."""
    folder.mkdir()
    (folder / "hello.txt").write_text(PAGE)
    with _serve(folder) as port:
        yield port


@contextlib.contextmanager
def _serve(root: Path, certificates: Certificates | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, directory=str(root)))
    server.daemon_threads = True
    if certificates:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.cert_file, certificates.key_file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        serving.join(PATIENCE)
