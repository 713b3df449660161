"""Binds a server's files to its calls: while a call of a bound tool runs, the server opens what its arguments named."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from proxy.sandbox.file_scope import named_paths
from proxy.sandbox.notify_acts import CALLS
from proxy.sandbox.notify_supervisor import Supervisor
from proxy.sandbox.violations import Violation
from proxy.trace.supervised import trace_line

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from proxy.core.model import InFlightCall, Message
    from proxy.sandbox.notify_acts import Act
    from proxy.sandbox.profile import SandboxProfile
    from proxy.sandbox.violations import Boundaries

    type TakeViolation = Callable[[Violation, Sequence[InFlightCall]], None]

# Requests beside tools/call that name a file in what they ask for.
NAMING: Final = frozenset({"resources/read", "resources/subscribe", "prompts/get", "completion/complete"})
NOT_NAMED: Final = "files: from arguments, and no call in flight named it"
DELETING: Final = frozenset({"unlink", "rename"})


class BoundFiles:
    """One server's binding, which holds from the server's first system call on.

    `channel` is where its launcher sends the listener, `folders` are what relative names may be below, and `trace` is
    the writing end of its trace.
    """

    def __init__(
        self,
        channel: socket.socket,
        profile: SandboxProfile,
        granted: Boundaries,
        folders: Sequence[str],
        home: str,
        take: TakeViolation,
        trace: int | None = None,
    ) -> None:
        self._profile = profile
        self._granted = granted
        self._folders = tuple(folders)
        self._home = home
        self._take = take
        self._trace = trace
        self._open: dict[str, InFlightCall] = {}
        self._changing = threading.Lock()
        bound = profile.binds_files
        self.supervisor = Supervisor(channel, granted.files, self._acted, self._expire, self._close_trace, bound=bound)
        self.supervisor.start()

    def stop(self) -> None:
        self.supervisor.stop()

    def _close_trace(self) -> None:
        # At once: the trace ends when nobody can write to it any more.
        if self._trace is not None:
            os.close(self._trace)
            self._trace = None

    def request_sent(self, message: Message, in_flight: InFlightCall) -> None:
        """Open what a request names, before it is written to the server."""
        if message.id is None or message.method is None:
            return
        if message.method == "tools/call":
            tool = self._profile.tool(in_flight.call.tool or "")
            bound = tool.files == "from arguments"
            named = self._named(message.params.get("arguments")) if bound else None
        elif message.method in NAMING:
            named = self._named(message.params)
        else:
            return  # names nothing: what is open at all times is enough
        with self._changing:
            self._open = {**self._open, in_flight.call_id: in_flight}
        self.supervisor.begin_call(in_flight.call_id, named)

    def _named(self, arguments: object) -> frozenset[str]:
        named = named_paths(arguments, self._folders, self._home)
        # A name that is a link stands for what it leads to now, as far as the profile grants that.
        return named | frozenset(map(os.path.realpath, named))

    def _expire(self) -> None:
        """End the calls that were answered. Called in the supervisor's thread before each act."""
        for call_id, in_flight in self._open.items():
            if in_flight.closed:
                self.supervisor.end_call(call_id)
                with self._changing:
                    self._open = {name: each for name, each in self._open.items() if name != call_id}

    def _acted(self, act: Act) -> None:
        if self._trace is not None:
            line = trace_line(act, time.time())
            if line is not None:
                # Without a reader there is no trace to keep; the runner ends a server whose trace has ended.
                with contextlib.suppress(BrokenPipeError):
                    os.write(self._trace, line.encode("latin-1") + b"\n")
        if act.denied:
            self._take(self._violation(act), tuple(self._open.values()))

    def _violation(self, act: Act) -> Violation:
        function = CALLS.get(act.call, ("", ""))[0]
        error = errno.errorcode.get(act.error, "EACCES")
        if not function:
            return Violation("kernel", act.call, act.call, "no profile grants this system call", "supervisor", error)
        path = act.paths[-1] if act.paths else ""
        kind = "fs.delete" if function in DELETING else "fs.write" if act.writes else "fs.read"
        return Violation(kind, function, path, self._line(path, write=act.writes), "supervisor", error)

    def _line(self, path: str, *, write: bool) -> str:
        if self._granted.files.grants(path, write):
            return NOT_NAMED
        missing = "write does not list it" if write else "read and write do not list it"
        return self._granted.hidden_by(path) or missing
