"""Tells of the system calls that a server's seccomp filter refuses, by a listener of that filter.

The filter asks, and the answer is always no: whatever happens here, no refused call is carried out. Without us, the
kernel lets them fail with ENOSYS. A tracer sees none of this, because the filter comes first.
"""

from __future__ import annotations

import errno
import os
import select
from typing import TYPE_CHECKING, Final

from proxy.sandbox.notify_kernel import GoneError, Listener
from proxy.sandbox.syscall_filter import (
    ARCHITECTURES,
    CALLS,
    CHANGE_MODE,
    CLONE,
    INET,
    INET6,
    IOCTL,
    MEMFD_CREATE,
    SECCOMP,
    SOCK_KIND,
    SOCK_RAW,
    SOCKET,
    SOCKETPAIR,
    UNIX,
    UNSHARE,
)
from proxy.sandbox.violations import Violation

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from proxy.sandbox.notify_kernel import Question

MAX_WAITING: Final = 100  # of what was refused before somebody wanted to know
_OTHERS: Final = {
    "clone": CLONE,
    "unshare": UNSHARE,
    "socket": SOCKET,
    "socketpair": SOCKETPAIR,
    "ioctl": IOCTL,
    "memfd_create": MEMFD_CREATE,
    "seccomp": SECCOMP,
}
NO_GRANT: Final = "no profile grants this system call"
NO_SOCKETS: Final = "sockets lists none"


class RefusedCalls:
    """Answers for one server's filter, on the loop, until `close`."""

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        os.set_inheritable(descriptor, False)
        self._listener = Listener(descriptor)
        self._loop = loop
        self._names = _names(os.uname().machine)
        self._waiting: list[Violation] = []
        self._take: Callable[[Violation], None] | None = None
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        loop.add_reader(descriptor, self._answer)

    def tell(self, take: Callable[[Violation], None]) -> None:
        """Have `take` called with each refused call, also with those that were refused already."""
        self._take = take
        for each in self._waiting:
            take(each)
        self._waiting.clear()

    def close(self) -> None:
        """Answer no more."""
        if self._listener.descriptor >= 0:
            self._loop.remove_reader(self._listener.descriptor)
            os.close(self._listener.descriptor)
            self._listener.descriptor = -1

    def _answer(self) -> None:
        for _, events in self._poll.poll(0):
            if not events & select.POLLIN:  # nobody is left in the filter
                self.close()
                return
            try:
                question = self._listener.receive()
                found = violation_of(question, self._names)
                # Before the program goes on: an answer that it gives next is barred already, if it is to be.
                self._tell(found)
                self._listener.answer(question, error=getattr(errno, found.error or "EPERM"))
            except GoneError:
                continue

    def _tell(self, found: Violation) -> None:
        if self._take is not None:
            self._take(found)
        elif len(self._waiting) < MAX_WAITING and found not in self._waiting:
            self._waiting.append(found)


def _names(machine: str) -> dict[int, str]:
    column = ARCHITECTURES[machine][1]
    known = {**CALLS, **_OTHERS, **CHANGE_MODE}
    return {number: name for name, numbers in known.items() if (number := numbers[column]) is not None}


def violation_of(question: Question, names: dict[int, str]) -> Violation:
    """Return what a refused system call is called. Pure."""
    name = names.get(question.number, f"system call {question.number}")
    if name not in ("socket", "socketpair"):
        return Violation("kernel", name, name, NO_GRANT, "seccomp", "EPERM")
    family, kind = question.arguments[0] & 0xFFFFFFFF, question.arguments[1] & SOCK_KIND
    if family == UNIX:
        return Violation("ipc.unix", "socket", "a unix socket", NO_SOCKETS, "seccomp", "EAFNOSUPPORT")
    if family in (INET, INET6) and kind == SOCK_RAW:
        return Violation("net.connect", "raw socket", "a raw socket", NO_GRANT, "seccomp", "EPERM")
    return Violation("kernel", name, f"{name} of family {family}", NO_GRANT, "seccomp", "EAFNOSUPPORT")
