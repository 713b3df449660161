"""Starts a local server below a process reaper, so that it and all it started end with its owner."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import signal
import sys
import threading
from array import array
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD
from typing import TYPE_CHECKING

from proxy.errors import StartError
from proxy.sandbox import process_reaper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHUNK = 1 << 16
TERM_SECONDS = 5.0
COPY_SECONDS = 1.0
KILL_SECONDS = 2 * process_reaper.KILL_SECONDS
_HERE = Path(process_reaper.__file__).resolve().parent
SANDBOX = ("-I", "-S", str(_HERE / "sandbox_exec.py"))  # the words for the interpreter that sets a sandbox up


@dataclass(frozen=True, slots=True)
class Launch:
    program: str  # its file
    argv: tuple[str, ...]  # name first
    descriptors: tuple[int, ...] = ()  # that it inherits besides its streams; `start_server` closes them here
    environ: Mapping[str, str] | None = None  # ours, but for our settings, where it is None
    own_stderr: bool = False  # a pipe of its own, whose content is copied to ours
    made: tuple[tuple[str, int], ...] = ()  # files and inodes that were made for it; removed if they stay empty


def plan_launch(command: Sequence[str], environ: Mapping[str, str]) -> Launch:
    """Find the program of `command` on PATH. Raises StartError, with a shell's exit code, where there is none."""
    try:
        return Launch(_find(command[0], os.get_exec_path(environ)), tuple(command))
    except OSError as error:
        raise StartError(process_reaper.explain_start(command[0], error), process_reaper.start_code(error)) from error


def _find(name: str, folders: Sequence[str]) -> str:
    problem = errno.ENOENT
    for path in [name] if "/" in name else [os.path.join(folder, name) for folder in folders]:  # noqa: PTH118
        if os.path.isdir(path):  # noqa: PTH112
            problem = errno.EISDIR
        elif os.access(path, os.X_OK):
            return path
        elif os.path.exists(path):  # noqa: PTH110
            problem = errno.EACCES
    raise OSError(problem, os.strerror(problem), name)


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    # asyncio reports a process's end only once its pipes are closed, and another process may hold those open.
    def __init__(self) -> None:
        super().__init__(limit=CHUNK, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


@dataclass(eq=False, slots=True)
class ServerProcess:
    """A running server and its reaper. Made by `start_server`."""

    _process: asyncio.subprocess.Process
    _exited: asyncio.Event
    _owner_end: int | None
    _pipes: tuple[int, int]
    _copying: threading.Thread | None = None
    _given: int = 0

    @property
    def pid(self) -> int:
        """The reaper's process, which takes the signals."""
        return self._process.pid

    @property
    def stdout_inode(self) -> int:
        return self._pipes[1]

    async def read(self) -> bytes:
        """Return what the server wrote to its stdout; empty at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(CHUNK)

    async def write(self, data: bytes) -> None:
        """Write to the server's stdin, as fast as it reads. Raises OSError where it has closed it."""
        assert self._process.stdin is not None
        self._given += len(data)
        self._process.stdin.write(data)
        await self._process.stdin.drain()

    def has_read(self) -> bool:
        """Return whether the server has read anything of its stdin; also True where that cannot be known any more."""
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            return True
        unread = array("i", [0])
        try:
            ioctl(self._pipes[0], FIONREAD, unread)
        except OSError:
            return True
        written = self._given - stdin.transport.get_write_buffer_size()
        return unread[0] < written

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait for the end; return the exit code."""
        await self._exited.wait()
        code = self._process.returncode
        assert code is not None
        return code if code >= 0 else process_reaper.SIGNALLED - code

    async def stop(self, seconds: float) -> int:
        """Close the server's stdin, wait, terminate it, wait, kill it and all it started; return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        terminate = functools.partial(self.signal, signal.SIGTERM)
        # Closing stdin first: MCP asks clients to end a stdio server so. A reaper that does not end by the last step
        # was stopped by the server; it is killed, and its children become ours.
        steps = ((seconds, terminate), (TERM_SECONDS, self.kill), (KILL_SECONDS, self._process.kill))
        for limit, insist in steps:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self.ended(), limit)
            insist()
        return await self.ended()

    def kill(self) -> None:
        """Close the reaper's pipe, upon which it kills the server and all it started."""
        if self._owner_end is not None:
            os.close(self._owner_end)
            self._owner_end = None

    async def clean_up(self) -> None:
        self.kill()
        try:
            await asyncio.wait_for(self.ended(), KILL_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        if self._copying is not None:  # what it said last
            await asyncio.to_thread(self._copying.join, COPY_SECONDS)


def _environment(launch: Launch) -> dict[str, str]:
    # Our settings hold secrets, such as the database's URL.
    given = os.environ if launch.environ is None else launch.environ
    return {name: value for name, value in given.items() if not name.startswith("INTERLOCK_")}


def _copied_stderr() -> tuple[int, threading.Thread]:
    """Return a descriptor for a server's stderr, and the thread that copies what is written to it to ours.

    Ours may be a file or a terminal of the client's. Who holds it can truncate the file, or read what is typed.
    """
    reading, writing = os.pipe()
    copying = threading.Thread(target=_copy, args=(reading,), name="interlock-stderr", daemon=True)
    copying.start()
    return writing, copying


def _copy(reading: int) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(reading, CHUNK):
            while data:
                data = data[os.write(2, data) :]
    os.close(reading)


async def start_server(launch: Launch) -> ServerProcess:
    """Start a server with pipes for its stdin and stdout; its stderr is ours, or is copied to ours."""
    reaper_end, owner_end = os.pipe()
    loop = asyncio.get_running_loop()
    stderr, copying = _copied_stderr() if launch.own_stderr else (None, None)
    try:
        transport, protocol = await loop.subprocess_exec(
            _Protocol,
            sys.executable,
            # Isolated and without site-packages: the server's folder must not choose what the reaper imports.
            *("-I", "-S", str(_HERE / _reaper_of(launch))),
            str(reaper_end),
            *(word for path, inode in launch.made for word in (process_reaper.REMOVE_EMPTY, path, str(inode))),
            *(launch.program, *launch.argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=_environment(launch),
            pass_fds=(reaper_end, *launch.descriptors),
            start_new_session=True,  # a terminal's Ctrl-C comes to us alone, and we forward it
        )
    except BaseException:
        os.close(owner_end)
        raise
    finally:
        for descriptor in (reaper_end, *launch.descriptors, *(() if stderr is None else (stderr,))):
            os.close(descriptor)
    process = asyncio.subprocess.Process(transport, protocol, loop)
    # Read now: asyncio closes the pipe of a server that ends, which may be before anybody asks.
    return ServerProcess(process, protocol.exited, owner_end, _pipes_of(transport), copying)


def _reaper_of(launch: Launch) -> str:
    # Under strace it is strace that the reaper starts.
    is_sandbox = (launch.program, *launch.argv[1:4]) == (sys.executable, *SANDBOX)
    return "sandboxed_reaper.py" if is_sandbox else "process_reaper.py"


def _pipes_of(transport: asyncio.SubprocessTransport) -> tuple[int, int]:
    """Return the descriptor of the server's stdin pipe and the inode of its stdout pipe; -1, 0 if it has ended."""
    ends = (transport.get_pipe_transport(number) for number in (0, 1))
    try:
        stdin, stdout = (end.get_extra_info("pipe").fileno() for end in ends if end is not None)
    except ValueError:  # closed: the server ended while it was being started
        return -1, 0
    return stdin, os.fstat(stdout).st_ino
