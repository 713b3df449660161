"""Starts one program, and sees that it and all it started end: with it, or with whoever started this one.

Run as a script of its own, so it uses the standard library alone:
`python warden.py FD PROGRAM NAME ARGUMENT…`. FD is the reading end of a pipe
whose other end the owner holds; when the owner dies, however that happens, the
pipe ends. Signals go on to the program. The exit code is the program's, or 128
and the number of the signal that ended it; 127 and 126 where it could not be
started, as shells have it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from typing import NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# What Python ignores and a program expects to find as it always is.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
KILL_SECONDS = 5.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
SIGNALLED = 128


def set_subreaper() -> None:
    """Become the parent of every descendant whose own parent dies."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def exit_code(status: int) -> int:
    """Return the exit code that tells of a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else SIGNALLED - code


def explain_start(name: str, error: OSError) -> str:
    """Say why a program could not be started."""
    return f"interlock run: cannot start {name!r}: {(error.strerror or str(error)).lower()}"


def start_code(error: OSError) -> int:
    """Return the exit code of a program that could not be started."""
    return NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE


def descendants(root: int) -> set[int]:
    """Return the processes below `root`, also those that have ended and nobody has taken note of."""
    parents = dict(_parents())
    found: set[int] = set()
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level} - found
        found |= level
    return found


def _parents() -> list[tuple[int, int]]:
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208  pathlib is slow to import
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    # The name in brackets may hold anything; what follows the last bracket may not.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            found.append((int(name), parent))
    return found


def kill_descendants(root: int, seconds: float = KILL_SECONDS) -> bool:
    """Kill all that is below `root`, also what is started meanwhile; return whether nothing is left."""
    deadline = time.monotonic() + seconds
    while left := descendants(root):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap()
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _reap() -> dict[int, int]:
    """Take the wait statuses of the children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _start(program: str, argv: list[str], warden: int) -> int:
    pid = os.fork()
    if pid == 0:
        _become(program, argv, warden)
    return pid


def _become(program: str, argv: list[str], warden: int) -> NoReturn:
    try:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != warden:  # it died before it was asked for the signal
            os._exit(SIGNALLED + signal.SIGKILL)
        for number in (*FORWARDED, *RESTORED, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(program, argv, os.environ)  # noqa: S606  no shell: the words are the client's own
    except OSError as error:
        os.write(2, (explain_start(argv[0], error) + "\n").encode("utf-8", "replace"))
        os._exit(start_code(error))
    finally:
        os._exit(NOT_EXECUTABLE)


def watch(pid: int, owner: int, wakeup: int) -> int | None:
    """Pass signals on until the program ends; return its wait status, or None where the owner went first."""
    while True:
        ready, _, _ = select.select([owner, wakeup], [], [])
        if wakeup in ready:
            for number in os.read(wakeup, 4096):
                if number in FORWARDED:
                    os.kill(pid, number)
            status = _reap().get(pid)
            if status is not None:
                return status
        if owner in ready and not os.read(owner, 1):
            return None


def main(argv: list[str]) -> int:
    """Start the program and stay until nothing of it is left."""
    owner, program, command = int(argv[0]), argv[1], argv[2:]
    os.set_inheritable(owner, False)
    set_subreaper()
    _prctl(PR_SET_DUMPABLE, 0)  # no server looks into its warden
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    pid = _start(program, command, os.getpid())
    for stream in (0, 1):  # the program's alone: its ends must be ends to the owner too
        os.close(stream)
    status = watch(pid, owner, reading)
    kill_descendants(os.getpid())
    return SIGNALLED + signal.SIGKILL if status is None else exit_code(status)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
