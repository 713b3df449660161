"""Supervises the file access of a local server: a thread that answers what its seccomp filter asks.

The server opens only what the calls in flight named, and what its profile opens at all times. Each open is carried out
here, and the server gets the descriptor (`notify_acts.py`). Calls in parallel: what each of them named may be opened by
all, since a server does not say which of its threads works for which call.

When this thread ends, for whatever reason, the kernel lets every further call fail with ENOSYS.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import select
import socket
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from proxy.sandbox.file_scope import FileLimits, FileScope
from proxy.sandbox.notify_acts import Act, Files, Opened
from proxy.sandbox.notify_kernel import GoneError, Listener
from proxy.sandbox.notify_paths import DeniedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.sandbox.notify_kernel import Question

log = structlog.get_logger("interlock.sandbox")

CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = re.compile(rb"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)
_LIBC = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """One server's supervisor.

    In its thread `before_act` is called before each act is decided, and `on_act` with it before the server goes on;
    `on_end` is called when nothing more comes.
    `channel` is the end of a socket pair whose other end the server's launcher got (`notify_filter.send_listener`).
    """

    def __init__(
        self,
        channel: socket.socket,
        limits: FileLimits,
        on_act: Callable[[Act], None] | None = None,
        before_act: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
        *,
        bound: bool = True,
    ) -> None:
        self._channel = channel
        self._limits = limits
        self._bound = bound  # else the profile alone decides, at all times
        self._on_act = on_act
        self._before_act = before_act
        self._on_end = on_end
        self._calls: dict[str, frozenset[str] | None] = {}
        self._changing = threading.Lock()
        self._scope = FileScope(limits, () if bound else None)
        self._stopping, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._run, name="interlock-supervisor", daemon=True)
        self.failed: str | None = None  # why it ended before the server did
        self._files: Files | None = None

    def start(self) -> None:
        self._thread.start()

    def begin_call(self, call_id: str, named: frozenset[str] | None) -> None:
        """Let the server open what a call names, until `end_call`; None: all that its profile grants."""
        self._change(call_id, named, ended=False)

    def end_call(self, call_id: str) -> None:
        self._change(call_id, None, ended=True)

    def calls(self) -> tuple[str, ...]:
        """Return the calls in flight."""
        return tuple(self._calls)

    def _change(self, call_id: str, named: frozenset[str] | None, *, ended: bool) -> None:
        if not self._bound:
            return
        with self._changing:
            calls = {name: each for name, each in self._calls.items() if name != call_id}
            if not ended:
                calls[call_id] = named
            elif len(calls) == len(self._calls):
                return
            sets = [each for each in calls.values() if each is not None]
            # One assignment each: the thread has the old scope or the new one.
            self._calls = calls
            self._scope = FileScope(self._limits, None if len(sets) < len(calls) else frozenset[str]().union(*sets))

    def stop(self) -> None:
        """End the thread. What the server asks from now on fails."""
        if self._stop >= 0:
            os.close(self._stop)
            self._stop = -1
            self._thread.join()
            os.close(self._stopping)

    def _run(self) -> None:
        listener = -1
        try:
            # Own umask and folder: modes are applied as the server's umask has them.
            os.unshare(os.CLONE_FS)
            os.umask(0)
            listener = self._receive_listener()
            if listener >= 0:
                self._serve(Listener(listener))
        except Exception as error:
            # Closed below: without a supervisor nothing is opened.
            self.failed = str(error) or type(error).__name__
            log.exception("the supervisor of a server has ended", exc_info=error)
        finally:
            self._channel.close()
            if listener >= 0:
                os.close(listener)
            if self._on_end is not None:
                self._on_end()

    def _receive_listener(self) -> int:
        ready, _, _ = select.select([self._channel.fileno(), self._stopping], [], [])
        if self._stopping in ready:
            return -1
        data, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        if not data or len(descriptors) != 1:
            return -1  # the launcher has ended without one
        os.set_inheritable(descriptors[0], False)
        self._channel.send(b"G")
        return descriptors[0]

    def _serve(self, listener: Listener) -> None:
        poll = select.poll()
        poll.register(listener.descriptor, select.POLLIN)
        poll.register(self._stopping, select.POLLIN)
        while True:
            events = dict(poll.poll())
            if self._stopping in events:
                return
            if not events.get(listener.descriptor, 0) & select.POLLIN:
                return  # nobody is left in the filter
            try:
                question = listener.receive()
                files = self._files or self._begin(listener, question)
                self._answer(listener, files, question)
            except GoneError:
                continue

    def _begin(self, listener: Listener, question: Question) -> Files:
        """Take on what the server is: its root folder, and no capability that it has not."""
        _keep_capabilities_of(question.thread)
        # Its root stays the same: whatever could change it is refused.
        root = os.open(f"/proc/{question.thread}/root", getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC)
        listener.check_waits(question)
        self._files = Files(listener, root)
        return self._files

    def _answer(self, listener: Listener, files: Files, question: Question) -> None:
        if self._before_act is not None:
            self._before_act()
        files.scope = self._scope
        done: Opened | int = 0
        number, denied = 0, False
        try:
            done = files.carry_out(question)
        except DeniedError as error:
            number, denied = error.number, True
        except OSError as error:
            number = error.errno or errno.EACCES
        try:
            # Before the program goes on: what it does next is told after this.
            if self._on_act is not None:
                self._on_act(Act(files.name(question), question.thread, files.paths, files.flags, number, denied))
            if isinstance(done, Opened):
                listener.hand_in(question, done.descriptor, close_on_exec=done.close_on_exec)
            else:
                listener.answer(question, done, number)
        finally:
            if isinstance(done, Opened):
                os.close(done.descriptor)


def _keep_capabilities_of(thread: int) -> None:
    """Drop, in this thread alone, what a server does not have: it must not get by us what it could not do itself."""
    status = Path(f"/proc/{thread}/status").read_bytes()
    found = _CAPABILITIES.search(status)
    own = _CAPABILITIES.search(Path("/proc/thread-self/status").read_bytes())
    if found is None or own is None:
        raise RuntimeError("the capabilities of a server cannot be read")
    # Those of another user namespace are about that namespace, and not about ours.
    foreign = os.stat(f"/proc/{thread}/ns/user").st_ino != os.stat("/proc/thread-self/ns/user").st_ino  # noqa: PTH116
    kept = 0 if foreign else int(found[1], 16) & int(own[1], 16)
    if kept == int(own[1], 16):
        return
    head = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    if _LIBC.capset(head, struct.pack("=6I", low, low, 0, high, high, 0)) != 0:
        raise RuntimeError(f"capabilities cannot be dropped: {os.strerror(ctypes.get_errno())}")
