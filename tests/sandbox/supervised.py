"""Runs rows of Python in one supervised process: `python -m tests.sandbox.supervised` with JSON on stdin.

Each row's outcome is what it printed, or the name of the error that it ended with.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.sandbox import notify_filter
from proxy.sandbox.file_scope import FileLimits, PathSet
from proxy.sandbox.notify_supervisor import Supervisor
from tests.support.timeouts import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.sandbox.notify_acts import Act

RUNTIME = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", sys.prefix, sys.base_prefix)
SERVER = """
import contextlib, ctypes, errno, io, json, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    words = [w if isinstance(w, (bytes, type(None))) or hasattr(w, "_obj") else ctypes.c_long(w) for w in arguments]
    got = libc.syscall(ctypes.c_long(number), *words)
    if got < 0:
        raise OSError(ctypes.get_errno(), "")
    return got
def outcome(code, names):
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(code, names)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except Exception as error:
        return repr(error)
    return said.getvalue().strip()
for line in sys.stdin:
    code, names = json.loads(line)
    print(json.dumps(outcome(code, {**names, "os": os, "libc": libc, "syscall": syscall, "ctypes": ctypes,
        "threading": threading})), flush=True)
"""


class Server:
    """A supervised process that executes rows."""

    def __init__(self, process: subprocess.Popen[str], supervisor: Supervisor) -> None:
        self.process, self.supervisor = process, supervisor

    def run(self, code: str, **names: Any) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([code, names]) + "\n")
        self.process.stdin.flush()
        return str(json.loads(self.process.stdout.readline()))


def limits(folder: Path) -> FileLimits:
    """Let everything below a folder be granted by the profile, and only Python itself be open at all times."""
    return FileLimits(PathSet([str(folder)]), PathSet([str(folder)]), PathSet(RUNTIME))


@contextlib.contextmanager
def supervised(allowed: FileLimits, on_act: Callable[[Act], None] | None = None, **given: Any) -> Iterator[Server]:
    ours, theirs = socket.socketpair()
    supervisor = Supervisor(ours, allowed, on_act)
    supervisor.start()
    python = sys.executable
    command = [python, "-I", "-S", notify_filter.__file__, str(theirs.fileno()), "pairs", python, python, "-S", "-c"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, **given}
    process = subprocess.Popen([*command, SERVER], pass_fds=[theirs.fileno()], **pipes)
    theirs.close()
    try:
        yield Server(process, supervisor)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            supervisor.stop()


def main() -> None:
    asked = json.load(sys.stdin)
    folder = Path(asked["folder"])
    with supervised(limits(folder)) as server:
        server.supervisor.begin_call("call", frozenset(asked["named"]))
        names = {"folder": str(folder), "named": asked["named"][0]}
        told = [server.run(code, **names) for code in asked["rows"]]
    json.dump({"rows": told, "failed": server.supervisor.failed}, sys.stdout)


if __name__ == "__main__":
    main()
