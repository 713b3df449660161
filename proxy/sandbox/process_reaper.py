"""Starts one program, and ends it with everything that it started: when it ends, or when its owner does.

Run as a script of its own, so it uses the standard library alone: `python process_reaper.py FD PROGRAM NAME ARGUMENT…`.
Before PROGRAM may stand `--remove-empty PATH INODE`: a file that is removed at the end if it is still empty.
FD is the reading end of a pipe whose other end the owner holds; when the owner dies, however that happens, the pipe
ends. Signals are forwarded to the program. The exit code is the program's, or 128 plus the number of the signal that
ended it; 127 and 126 where it could not be started, as in a shell.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # not from typing, which takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
# Python ignores these two; a program expects their default, and inherits what is ignored.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
KILL_SECONDS = 5.0
NOT_FOUND, NOT_EXECUTABLE = 127, 126
SIGNALLED = 128
REMOVE_EMPTY = "--remove-empty"  # with a path and its inode; before the program


def prctl(option: int, *values: int) -> None:
    """Set an attribute of this process. Raises OSError where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    # The function is variadic: without a type, ctypes passes 32 bits and the kernel reads 64.
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *words) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def set_subreaper() -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def exit_code(status: int) -> int:
    """Return the exit code for a wait status: 128 plus the signal for a program that was killed."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else SIGNALLED - code


def reap_until(child: int) -> int:
    """Wait for every child, as process 1 of a namespace must, until `child` ends; return its exit code."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return exit_code(status)


def explain_start(name: str, error: OSError) -> str:
    return f"interlock run: cannot start {name!r}: {(error.strerror or str(error)).lower()}"


def start_code(error: OSError) -> int:
    return NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE


def descendants(root: int) -> set[int]:
    """Return the processes below `root`, zombies included."""
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
                    # A process chooses its name, brackets included; only what follows the last bracket is the kernel's.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
            found.append((int(name), parent))
    return found


def kill_descendants(root: int, seconds: float = KILL_SECONDS) -> bool:
    """Kill everything below `root`, also what is started meanwhile; return whether nothing is left."""
    deadline = time.monotonic() + seconds
    # Once is not enough: what forks between the listing and the kill is seen only by the next round.
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
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def execute_program(program: str, argv: list[str]) -> None:
    """Become a program. Raises OSError."""
    os.execve(program, argv, os.environ)  # noqa: S606  no shell: the words are the client's own


def _become(program: str, argv: list[str], reaper: int, execute: Callable[[str, list[str]], None]) -> NoReturn:
    try:
        # A reaper that is killed with SIGKILL can end nothing: the kernel then ends the program.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != reaper:  # it died before the line above, so no signal will come
            os._exit(SIGNALLED + signal.SIGKILL)
        for number in (*FORWARDED, *RESTORED, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        execute(program, argv)
    except OSError as error:
        os.write(2, (explain_start(argv[0], error) + "\n").encode("utf-8", "replace"))
        os._exit(start_code(error))
    finally:
        os._exit(NOT_EXECUTABLE)


def watch(pid: int, owner: int, wakeup: int) -> int | None:
    """Forward signals until the program ends; return its wait status, or None where the owner ended first."""
    while True:
        ready, _, _ = select.select([owner, wakeup], [], [])
        if wakeup in ready:
            # Forwarded before reaping: until it is waited for, the number cannot be another process's.
            for number in os.read(wakeup, 4096):
                if number in FORWARDED:
                    os.kill(pid, number)
            status = _reap().get(pid)
            if status is not None:
                return status
        if owner in ready and not os.read(owner, 1):
            return None


def hold(path: str) -> int | None:
    """Keep a file that was made for the program from another server's reaper, which would remove it; None if gone."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def remove_empty(path: str, inode: int, held: int | None) -> None:
    """Remove a file that was made for the program, and that it left empty, unless another server has it too.

    It may stand where no server may make a file: a name that is free again would be free for all of them.
    """
    if held is None:
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.lstat(path)
        if found.st_ino == inode and found.st_size == 0 and stat.S_ISREG(found.st_mode):
            os.unlink(path)
    except OSError:
        return  # somebody else removed it, or has it


def main(argv: list[str], execute: Callable[[str, list[str]], None] = execute_program) -> int:
    """Run the program until it or the owner ends; return the exit code. `execute` makes a process the program."""
    owner, rest = int(argv[0]), argv[1:]
    made: list[tuple[str, int, int | None]] = []
    while rest[0] == REMOVE_EMPTY:
        made.append((rest[1], int(rest[2]), hold(rest[1])))
        del rest[:3]
    program, command = rest[0], rest[1:]
    # A server that inherited the pipe could hold it open, and would not be ended with its owner.
    os.set_inheritable(owner, False)
    # Before the fork: a daemon that detaches itself must become our child, not init's.
    set_subreaper()
    prctl(PR_SET_DUMPABLE, 0)  # the server runs as the same user: it must neither read nor ptrace us
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # Handlers before the fork, or a child that ends at once would not wake us up.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    reaper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(program, command, reaper, execute)
    for stream in (0, 1):  # while we hold them too, the owner would not see the program close them
        os.close(stream)
    status = watch(pid, owner, reading)
    kill_descendants(reaper)
    for each in made:  # here: the owner may have been killed
        remove_empty(*each)
    return SIGNALLED + signal.SIGKILL if status is None else exit_code(status)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
