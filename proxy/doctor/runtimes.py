"""Tries each runtime of this machine: whether its HTTPS goes through the proxy, around it, or nowhere.

A request goes to a listener of ours that closes every connection without a word. So only the proxy can have sent an
answer. Where there is none and the listener was dialled, the request went around the proxy; where it was not, the
runtime did not accept the proxy's certificate, or failed for another reason.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from proxy.doctor.findings import CheckResult, ok, warn
from proxy.doctor.runtime_programs import LOOPBACK, NOT_HERE, RuntimeProgram, found

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

SECONDS = 5.0
MAX_LINE = 200
_DISTRUST = re.compile(r"certificat|self[- ]signed|x509|PKIX|\bSSL\b|\bTLS\b|\bCERT", re.IGNORECASE)
_CONFINE = "start the agent with `interlock confine`, which leaves it no other way out (docs/confine.md)"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one program said and did. `code` is None where it had to be ended."""

    code: int | None
    said: str
    dialled: bool


def try_runtimes(environ: Mapping[str, str], seconds: float = SECONDS, in_all: float = 30.0) -> Iterator[CheckResult]:
    """Yield a result for each runtime on the path, started with `environ`, in the order of the table.

    Each gets so many seconds, and none runs longer than `in_all`.
    """
    programs, end = list(found(environ)), time.monotonic() + in_all
    if not programs:
        yield ok("runtimes", "none of those that are known is on the path")
        return
    with (
        tempfile.TemporaryDirectory(prefix="interlock-doctor-") as folder,
        Listener(len(programs)) as listener,
        # More than there are processors: they wait most of the time. All at once would make each look slow.
        ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool,
    ):

        def attempt(at: int) -> CheckResult | None:
            program, place = programs[at], Path(folder) / str(at)
            place.mkdir()
            url, left = f"https://{program.host}:{listener.ports[at]}/", end - time.monotonic()
            code, said = run_program(program, url, environ, place, min(seconds, left)) if left > 0 else (None, "")
            return judge(program, Attempt(code, said, listener.was_dialled(at)), seconds)

        yield from filter(None, pool.map(attempt, range(len(programs))))


def judge(program: RuntimeProgram, attempt: Attempt, seconds: float = SECONDS) -> CheckResult | None:
    """Say what an attempt shows; None where the library is not installed."""
    name = f"runtime {program.name}"
    if program.answered.search(attempt.said):
        return ok(name, "goes through the proxy")
    if attempt.code == NOT_HERE:
        return None
    if attempt.dialled:
        return warn(name, "goes around the proxy: it does not use HTTPS_PROXY", _CONFINE)
    if attempt.code is None:
        return warn(name, f"not known: no answer within {seconds:g} s", "run `interlock doctor` again with less load")
    last = (attempt.said.strip().splitlines() or ["it said nothing"])[-1].strip()[:MAX_LINE]
    told = next((line for line in attempt.said.splitlines() if _DISTRUST.search(line)), None)
    if told is not None:
        said = f"refuses the proxy's certificate: {told.strip()[:MAX_LINE]}"
        return warn(name, said, "make it trust the CA that `interlock ca export` prints")
    return warn(name, f"gets no answer through the proxy: {last}", "try it by hand with `interlock exec`")


def run_program(
    program: RuntimeProgram, url: str, environ: Mapping[str, str], folder: Path, seconds: float
) -> tuple[int | None, str]:
    """Run a program in `folder`; return its exit code, None where it took too long, and what it printed."""
    for name, text in program.files:
        (folder / name).write_text(text)
    # Nothing in the user's own folders: npm writes a log of every failure, and Go wants no module here.
    own = {"npm_config_cache": str(folder), "npm_config_update_notifier": "false", "GO111MODULE": "off"}
    own |= {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        process = subprocess.Popen(  # noqa: S603  programs of the table, found on the user's path
            [*program.words, url],
            cwd=None if program.name == "node undici" else folder,  # a library of the project that the user stands in
            env={**environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return 1, str(error)
    with process:
        try:
            said, _ = process.communicate(timeout=seconds)
            return process.returncode, said.decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            # Its own children too: `go run` and npm start others.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


class Listener:
    """Listens on several loopback ports, closes every connection at once, and knows which port was dialled."""

    def __init__(self, count: int) -> None:
        self._sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
        self.ports: Sequence[int] = [each.getsockname()[1] for each in self._sockets]
        for each in self._sockets:
            each.setblocking(False)
        self._dialled: set[int] = set()
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="doctor-listener", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._wake.close()
        self._thread.join()
        for each in (*self._sockets, self._woken):
            each.close()

    def was_dialled(self, at: int) -> bool:
        """Return whether a port was dialled before now."""
        self._take(at)  # what still waits in the backlog
        return at in self._dialled

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for at, each in enumerate(self._sockets):
                selector.register(each, selectors.EVENT_READ, at)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._woken:
                        return
                    self._take(key.data)

    def _take(self, at: int) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._sockets[at].accept()
                connection.close()
                self._dialled.add(at)
