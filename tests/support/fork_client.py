"""A command whose process is forked from a zygote, for those who can only start commands.

`python -I -S fork_client.py ADDRESS MODULE ARGUMENT…` hands its streams, environment and folder over, passes
signals on, and ends as the process does. The process is killed when this one is.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
START_LIMIT = 60.0


def main() -> NoReturn:
    # A signal that comes before there is a process to pass it on to waits until there is one.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    address, module, *arguments = sys.argv[1:]
    request: dict[str, Any] = {"module": module, "arguments": arguments, "env": dict(os.environ)}
    request |= {"cwd": os.getcwd(), "new_session": False}  # noqa: PTH109  pathlib is slow to import
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(START_LIMIT)
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        _, (process,), _, _ = socket.recv_fds(connection, 4096, 1)
        connection.settimeout(None)
        pass_signals_on(process, until=connection)
        end_as(json.loads(connection.recv(4096))["code"])


def pass_signals_on(process: int, until: socket.socket) -> None:
    """Send every signal that comes to the process, until there is something to read."""
    # Python runs a handler between two of its own steps: a signal just before a blocking read would wait for that
    # read. The byte that a signal writes here ends the wait.
    came, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno())
    for number in FORWARDED:
        signal.signal(number, lambda got, _: send_signal(process, got))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    os.close(0)  # who reads and writes these sees them end when the process ends them
    os.close(1)
    while until not in select.select([until, came], [], [])[0]:
        came.recv(64)
    signal.set_wakeup_fd(-1)


def send_signal(process: int, number: int) -> None:
    try:  # noqa: SIM105  contextlib is slow to import
        signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        pass  # it has just ended, and how it ended is told next


def end_as(code: int) -> NoReturn:
    """End with the exit code, or by the signal that ended the other."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
