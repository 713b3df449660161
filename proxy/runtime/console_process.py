"""The console's process from the supervisor's side: it is started by the first browser that connects.

The supervisor opens the socket and waits with it. A proxy whose console nobody opens has no such process; one that ends
is started again by the next connection.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import signal
import socket
import time
from typing import TYPE_CHECKING, Final, Literal

import structlog

from proxy.runtime.worker_process import WorkerProcess, fork_worker
from proxy.system import event_loop
from proxy.system.handed_sockets import HandedSockets
from proxy.system.listen_ports import format_address, unusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.config import Settings
    from proxy.policy.reloader import LivePolicy
    from proxy.system.listen_ports import Address

log = structlog.get_logger("interlock.console")

BACKLOG: Final = 128
PAUSE_SECONDS: Final = 2.0
NUMBER: Final = 0  # workers count from 1
NICENESS: Final = 5
_OTHER: Final = {"127.0.0.1": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1", "::": "127.0.0.1"}  # noqa: S104


class ConsoleProcess:
    """The console's listening socket, and its process once there is one."""

    def __init__(
        self,
        settings: Settings,
        policy: LivePolicy,
        close_inherited: Callable[[], None],
        handed: HandedSockets | None = None,
    ) -> None:
        """Listen, with the sockets that were handed on where they fit.

        Raises ConfigError if it cannot, and the address is one that somebody chose.
        """
        self._settings = settings
        self._policy = policy
        self._close_inherited = close_inherited
        if settings.console_oidc is not None:
            from proxy.identity.oidc_settings import load_oidc  # noqa: PLC0415  rarely used

            load_oidc(settings.console_oidc, settings.console_url)
        handed = handed or HandedSockets()
        self._listener = _listen(settings, handed)
        # Where it listens; None where it does not. Workers, which have no socket of it, deny it to agents.
        self.address: Address | None = None if self._listener is None else self._listener.getsockname()[:2]
        self._guard = _reserve_localhost(self.address, handed)
        self._due = 0.0
        self.process: WorkerProcess | None = None

    @property
    def url(self) -> str | None:
        """What an operator's browser opens; None where there is no console."""
        if self.address is None:
            return None
        if self._settings.console_url is not None:
            return self._settings.console_url
        host, port = self.address
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  what to dial, not to listen on
        return f"http://{format_address((host, port))}"

    @property
    def sockets(self) -> list[tuple[str, socket.socket]]:
        """What holds its addresses, for whoever takes over."""
        held = ("console", self._listener), ("console_guard", self._guard)
        return [(name, sock) for name, sock in held if isinstance(sock, socket.socket)]

    def interests(self) -> list[int]:
        """Return what the supervisor waits for: the first browser, or the end of the process."""
        if self.process is not None:
            return [self.process.pidfd]
        waits = self._listener is not None and time.monotonic() >= self._due
        return [self._listener.fileno()] if self._listener is not None and waits else []

    def attend(self, number: int) -> bool:
        """Start the process or see it end; return whether the file descriptor was one of its own."""
        if number not in self.interests():
            return False
        if self.process is None:
            self.process = fork_worker(NUMBER, lambda _: self._work(), self._close_inherited)
        else:
            self.reap()
        return True

    def reap(self) -> None:
        """Wait for the process to end."""
        if self.process is None:
            return
        code, why = self.process.reap(), self.process.failure
        self.process = None
        # Browsers try again at once: without a pause a console that cannot start would keep a processor busy.
        self._due = time.monotonic() + PAUSE_SECONDS
        if code not in (0, -signal.SIGTERM):
            log.error("the console ended, the next browser starts it again", why=why or f"exit code {code}")

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if isinstance(self._guard, socket.socket):
            self._guard.close()
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def close_in_worker(self) -> None:
        """Close what a worker inherits: only the console's own process accepts browsers."""
        if self._listener is not None:
            self._listener.close()

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.reap()

    def _work(self) -> None:
        assert self._listener is not None
        # What people look at may wait for what agents do.
        os.nice(NICENESS)
        from proxy.console.server import serve  # noqa: PLC0415  large, and for this process alone

        event_loop.run(serve(self._settings, self._listener, self._policy, owns_localhost=self._guard is not None))


def _listen(settings: Settings, handed: HandedSockets) -> socket.socket | None:
    if settings.console_address is None:
        return None
    host, port = settings.console_address
    if (given := handed.take("console", (host, port))) is not None:
        return given
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        problem = unusable("console_listen", host, port, error)
        # Only an address that somebody chose must work: a second proxy on this machine need not set another.
        if "console_listen" in settings.model_fields_set:
            raise problem from error
        log.warning("the console is not served", error=str(problem))
        return None
    if not ipaddress.ip_address(listener.getsockname()[0]).is_loopback and not settings.console_is_secure:
        log.warning("the console is reachable from other machines, without TLS", listen=listener.getsockname()[:2])
    return listener


def _reserve_localhost(address: Address | None, handed: HandedSockets) -> socket.socket | Literal["absent"] | None:
    """Take the console's port on the other loopback address too; None where somebody has it, or nothing is reserved.

    Browsers open `localhost`, which passkeys need, by either address. They would take an agent's listener on the other
    one for the console. Nothing listens on what is taken: browsers go on to the console. "absent": there is no such
    address on this machine.
    """
    if address is None or (host := ipaddress.ip_address(address[0])).compressed not in _OTHER:
        return None
    other = _OTHER[host.compressed]
    if (given := handed.take("console_guard", (other, address[1]))) is not None:
        return given
    guard = None
    try:
        guard = socket.socket(socket.AF_INET6 if ":" in other else socket.AF_INET)
        guard.bind((other, address[1]))
    except OSError as error:
        if guard is not None:
            guard.close()
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return "absent"
        log.warning(
            "localhost may lead elsewhere; passkeys need console_url", taken=format_address((other, address[1]))
        )
        return None
    return guard
