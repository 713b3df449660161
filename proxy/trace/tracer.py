"""Starts servers under strace: finds it, builds its command line, and makes the pipe for its output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.errors import TracingError
from proxy.trace.normalise import TRACED
from proxy.trace.tamper_guard import OpenCounter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.sandbox.server_process import Launch

SHOWN_BYTES = 512
CHECK_SECONDS = 10.0
PIPE_BYTES = 1 << 20
# Injected errors. strace cannot see what io_uring does, and with ENOSYS programs fall back to plain system calls;
# with the others a server could take control of its tracer. The attempts are traced all the same.
REFUSED = {
    "io_uring_setup": "ENOSYS",
    **dict.fromkeys(("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"), "EPERM"),
}
_TRANSLATED = re.compile(r"= [0-9]+ /\* ([0-9]+) in strace's PID NS \*/$")
PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")


def options(traced: Sequence[str] = TRACED) -> list[str]:
    """Return strace's options; the server stays a child of the process that starts strace."""
    names = ",".join(f"?{name}" for name in dict.fromkeys((*traced, *REFUSED)))
    return [
        # -DDD: strace in a session of its own, so that a signal to the server's group does not reach it.
        # --seccomp-bpf: only traced calls stop the server (30 ms instead of 128 for 1000 files), and when
        # strace is killed these calls fail: a server cannot continue unobserved.
        *("-DDD", "-f", "--seccomp-bpf", "-q"),
        # -y, not -yy: that one replaces a socket's inode by its addresses once it is connected.
        *("-ttt", "-y", "-s", str(SHOWN_BYTES), "-a", "1", "-e", "signal=none"),
        # "?" in front of a name: a call that this machine does not have is no error.
        *("-e", f"trace={names}"),
        *(word for name, error in REFUSED.items() for word in ("-e", f"inject={name}:error={error}")),
    ]


def find_strace(environ: Mapping[str, str]) -> str:
    """Return strace's path after a trial run. Raises TracingError that says what to do."""
    strace = shutil.which("strace", path=environ.get("PATH"))
    if strace is None:
        raise TracingError("strace is not installed; install the package strace")
    command = [strace, *options(), "-o", os.devnull, "--", strace, "-V"]
    try:
        tried = subprocess.run(  # noqa: S603  strace, by the path it was found at
            command, check=False, capture_output=True, timeout=CHECK_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TracingError(f"strace does not run: {error}") from error
    if tried.returncode != 0 or b"strace --" not in tried.stdout:
        raise TracingError(_explain(tried.stderr.decode("utf-8", "replace")))
    return strace


def _explain(stderr: str) -> str:
    last = stderr.strip().splitlines()[-1][:200] if stderr.strip() else "strace traced nothing"
    if "not permitted" not in stderr and "Permission denied" not in stderr and stderr.strip():
        return f"strace does not work here ({last})"
    ways = ["in a container, allow it with --cap-add=SYS_PTRACE"]
    with contextlib.suppress(OSError):
        scope = PTRACE_SCOPE.read_text().strip()
        if scope not in ("0", "1"):
            ways.append(f"kernel.yama.ptrace_scope is {scope}, and must be 1 or 0")
    return f"ptrace is refused ({last}); {', and '.join(ways)}"


def as_we_number(line: str) -> str:
    """Return a line of a sandboxed server with the number that a new process has here, not in its own namespace."""
    return _TRANSLATED.sub(r"= \1", line)


def under_strace(launch: Launch, strace: str, output: Path, *, sandboxed: bool = False) -> Launch:
    """Return what starts a server under strace; a sandboxed one numbers its processes otherwise than we do."""
    environ = os.environ if launch.environ is None else launch.environ
    # Without TZ the C library looks at /etc/localtime twice for each line's time: a tenth of what strace does.
    zone = f"TZ={environ['TZ']}" if "TZ" in environ else "TZ"  # the server's own, or none
    words = [*options(), *(["--decode-pids=pidns"] if sandboxed else []), "-E", zone]
    argv = ("strace", *words, "-o", str(output), "--", *launch.argv)
    return replace(launch, program=strace, argv=argv, environ={**environ, "TZ": "UTC0"})


class TracePipe:
    """The named pipe that strace writes to; `hide` removes its name once strace has opened it."""

    # A FIFO with mode 0600, not /proc/self/fd/N: the server would inherit that descriptor, and could forge lines.
    def __init__(self, *, supervised: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="interlock-trace-"))
        self.path = self._folder / "lines"
        os.mkfifo(self.path, 0o600)
        self.descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with contextlib.suppress(OSError, AttributeError):  # F_SETPIPE_SZ is Linux's alone
            fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # For what strace does not see, because a supervisor answers it. While it is open the trace does not end.
        self.writer = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC) if supervised else None
        self.openings = OpenCounter(self.path)

    def hide(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
            self._folder.rmdir()

    def close(self) -> None:
        self.hide()
        self.openings.close()
        os.close(self.descriptor)
