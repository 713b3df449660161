"""Processes of a run: started, waited for, and ended with all that they started, however the run ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_LIMIT = 60.0
STOP_LIMIT = 15.0
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_LIBC = ctypes.CDLL(None)


def end_cleanly() -> None:
    """Let SIGTERM end this process as Ctrl-C does: with everything that it started."""

    def stop(*_: object) -> None:
        raise SystemExit(130)

    signal.signal(signal.SIGTERM, stop)


class StartError(RuntimeError):
    """Something to be measured could not be started; the text says why."""


def free_port() -> int:
    """Return a loopback port that nobody listened on a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of what is measured: none of the caller's proxies and settings.

    Bytecode is kept, as it is of what is installed: else a checkout alone would be compiled at each start.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("INTERLOCK_")
        and not name.lower().endswith("_proxy")
        and name != "PYTHONDONTWRITEBYTECODE"
    }
    return kept | dict(extra or {})


def _die_with_parent() -> None:
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL)


@dataclass(frozen=True)
class Started:
    """A process in a group of its own, and the file of what it says."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """Return the end of what it said."""
        return self.log.read_text(errors="replace")[-2000:].strip()

    def end(self) -> None:
        """Ask it to end, then insist; its whole group goes."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_LIMIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_LIMIT)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def started(
    name: str,
    argv: Sequence[str | Path],
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    pipes: bool = False,
    output: bool = False,
) -> Iterator[Started]:
    """Run a command until the block ends.

    With `pipes`, its stdin and stdout are the caller's to use; with `output`, its stdout.
    Raises StartError where there is no such command.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    with log.open("wb") as said:
        try:
            process = subprocess.Popen(
                [str(word) for word in argv],
                cwd=cwd,
                env=environment(env),
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes or output else said,
                stderr=said,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  one call of the kernel, no lock
            )
        except OSError as error:
            raise StartError(f"{name}: {argv[0]}: {error.strerror}") from error
    one = Started(name, process, log)
    try:
        yield one
    finally:
        one.end()


def wait_until(one: Started, ready: Callable[[], bool], limit: float = START_LIMIT) -> float:
    """Wait until a process is ready; return the seconds it took.

    Raises StartError where it ends first, or the time is up.
    """
    begun = time.perf_counter()
    while not ready():
        if one.process.poll() is not None:
            raise StartError(f"{one.name} ended with {one.process.returncode}: {one.said()}")
        if time.perf_counter() - begun > limit:
            raise StartError(f"{one.name} was not ready within {limit:.0f} s: {one.said()}")
        time.sleep(0.005)
    return time.perf_counter() - begun


def listening(port: int) -> bool:
    """Return whether something takes connections at a loopback port."""
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0


def wait_for_port(one: Started, port: int, limit: float = START_LIMIT) -> float:
    """Wait until a process takes connections; return the seconds it took."""
    return wait_until(one, lambda: listening(port), limit)
