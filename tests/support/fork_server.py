"""Processes for tests without their start-up: forked from one that has the heavy imports behind it.

`python -m proxy.cli` takes over a second of imports before it does anything, and tests start it hundreds of
times. A zygote is a process that does these imports once and then waits. What it is asked for it forks: the child
takes the given arguments, environment, folder and standard streams, and runs the module by the very function that
`python -m` runs. The zygote has one thread, no handlers of signals and no open files, so a child has none either.

A child ends with its zygote, and a zygote with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
MAX_REQUEST = 1 << 17
LIFELINE = 0
INTERLOCK = (
    "proxy.cli",
    "proxy.runtime.supervisor",
    "proxy.runtime.wiring",
    "proxy.twophase.sampler",
    "proxy.admin_api.uvicorn_server",
    "proxy.stdio.runner",
    "proxy.stdio.pipes",
    "proxy.commands.mcp_session",
)
SERVERS = ("changing", "funds", "lenient", "python_modern", "python_sse", "python_stdio", "web")
IMPORTED_LATE = (
    "anyio._backends._asyncio",
    "rich.logging",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""What the SDK and uvicorn import when a server starts."""
PRELOADED = {"interlock": INTERLOCK, "servers": (*(f"tests.servers.{name}" for name in SERVERS), *IMPORTED_LATE)}


class Child:
    """One forked process, as its zygote sees it."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.connection = connection
        self.pidfd = os.pidfd_open(pid)

    def tell_start(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody to hear it: it is killed next
            socket.send_fds(self.connection, [json.dumps({"pid": self.pid}).encode()], [self.pidfd])

    def kill(self) -> None:
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def tell_end(self) -> None:
        """Pass on how the process ended; there may be nobody to hear it."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(json.dumps({"code": code}).encode())

    def close(self) -> None:
        self.connection.close()
        os.close(self.pidfd)


class Zygote:
    """Answers requests until nobody is left to make any; in a forked child, gives what it is to become."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(LIFELINE, selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ)
        self._children: list[Child] = []

    def serve(self) -> dict[str, Any] | None:
        """Return a request, in the child that was forked for it, or None where all is over."""
        while True:
            ready = {key.fd for key, _ in self._selector.select()}
            if LIFELINE in ready:
                return None
            for child in [each for each in self._children if {each.pidfd, each.connection.fileno()} & ready]:
                self._attend(child)
            if self._listener.fileno() in ready and (request := self._accept()) is not None:
                return request

    def _attend(self, child: Child) -> None:
        if not select.select([child.pidfd], [], [], 0)[0]:
            child.kill()  # whoever asked for it is gone
        child.tell_end()
        self._forget(child)

    def _accept(self) -> dict[str, Any] | None:
        connection, _ = self._listener.accept()
        raw, streams, _, _ = socket.recv_fds(connection, MAX_REQUEST, 3)
        if len(streams) != len(("stdin", "stdout", "stderr")):
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._become(streams)
            request: dict[str, Any] = json.loads(raw)
            return request
        for stream in streams:
            os.close(stream)
        self._remember(Child(pid, connection))
        return None

    def _remember(self, child: Child) -> None:
        self._children.append(child)
        self._selector.register(child.pidfd, selectors.EVENT_READ)
        self._selector.register(child.connection, selectors.EVENT_READ)
        child.tell_start()

    def _forget(self, child: Child) -> None:
        self._children.remove(child)
        self._selector.unregister(child.pidfd)
        self._selector.unregister(child.connection)
        child.close()

    def _become(self, streams: list[int]) -> None:
        """Let go of all that is the zygote's."""
        self._selector.close()
        self._listener.close()
        for child in self._children:
            child.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))


def run(request: dict[str, Any]) -> NoReturn:
    """Go on as `python -m MODULE ARGUMENT…` would, started in that folder and environment."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if request["new_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    added = request["env"].get("PYTHONPATH", "")
    sys.path[:1] = [str(Path.cwd()), *filter(None, added.split(os.pathsep))]
    sys.argv = ["-m", *request["arguments"]]
    sys.modules.pop(request["module"], None)
    try:
        runpy._run_module_as_main(request["module"])
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        leave(end.code or 0)
    leave(0)


def leave(code: int) -> NoReturn:
    """End as the interpreter does, but for taking the modules down: that copies every page shared with the zygote."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # of what is not frozen: what was left open says so
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError):  # nobody reads it, or it is closed: the interpreter has a message for that
        sys.exit(code)
    os._exit(code & 0xFF)


def _compile_once(kept: Path) -> None:
    """Compile what each new state folder would cost seconds for: the detectors, and the patterns of incoming text.

    The cache of the state folder goes to `kept`, for processes that are not forked.
    """
    importlib.import_module("tests.support.compile_once").share()
    with tempfile.TemporaryDirectory() as folder:
        cache = importlib.import_module("proxy.system.secret_files").FileCache(Path(folder) / "cache")
        importlib.import_module("proxy.injection.matcher").prepare(cache)
        settings = importlib.import_module("proxy.config").load_settings({"state_dir": Path(folder)}).settings
        importlib.import_module("proxy.runtime.wiring").preload(settings)
        whole = kept.with_suffix(".new")
        shutil.copytree(Path(folder) / "cache", whole)
        whole.rename(kept)


def main() -> None:
    """Be the zygote of a kind, or one of its children."""
    kind, listening = sys.argv[1], int(sys.argv[2])
    sys.path[0] = str(Path.cwd())
    if kind == "interlock":
        importlib.import_module("proxy.system.lean_imports").import_only_what_is_used()
        importlib.import_module("proxy.redact").builtin()  # a large file, read once
        for entry in importlib.import_module("proxy.commands.command_tree").Commands.entries:
            importlib.import_module(f"proxy.commands.{entry.name}")
        importlib.import_module("proxy.policy.rules").PolicyFile.model_rebuild()
        _compile_once(Path(sys.argv[3]))
    for module in PRELOADED[kind]:
        importlib.import_module(module)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        sys.exit(f"an import started a thread, and {threads} of them cannot be forked")
    gc.collect()
    gc.freeze()  # what is never collected is never copied either
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    os.write(1, b"ready")
    request = Zygote(socket.socket(fileno=listening)).serve()
    if request is not None:
        signal.signal(signal.SIGINT, interrupt)
        run(request)
