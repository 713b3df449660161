"""The sockets of one proxy: the agents' port, the admin API, health. Opened once, and handed on to the next proxy.

What a proxy before this one handed on is used where it fits the settings; what does not is closed.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import structlog

from proxy.admin_api.sockets import Listeners
from proxy.metrics.http_server import BACKLOG
from proxy.system.handed_sockets import activated_sockets
from proxy.system.listen_ports import ReservedPorts, unusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from proxy.config import Settings
    from proxy.system.handed_sockets import HandedSockets
    from proxy.system.listen_ports import Address

log = structlog.get_logger("interlock.supervisor")


class ProxySockets:
    """What the supervisor holds open for itself and its workers; the console has its own."""

    def __init__(self, settings: Settings, handed: HandedSockets, undo: Callable[[Callable[[], None]], object]) -> None:
        """Open them; `undo` takes what closes each. Raises ConfigError if an address cannot be used."""
        activated = activated_sockets(os.environ)
        self.listening = ReservedPorts("listen", *settings.listen_address, handed, activated)
        undo(self.listening.close)
        self._adopted: list[socket.socket] = []  # what the workers of the proxy before this one accept from
        undo(self.settle)
        for sock in handed.take_all("accept"):
            fits = sock.getsockname()[:2] in self.listening.addresses and not self.listening.listening
            self._adopted.append(sock) if fits else sock.close()
        self.operators = Listeners(settings.state_dir, settings.operator_address, handed)
        undo(self.operators.close)
        self.health = _open_health(settings, handed)
        self.health_address: Address | None = None
        if self.health is not None:
            undo(self.health.close)
            self.health_address = self.health.getsockname()[:2]

    def named(self, accepting: Iterable[socket.socket]) -> list[tuple[str, socket.socket]]:
        """Return all by what they are for, with those that the workers accept from."""
        all_of = [("listen", sock) for sock in self.listening.sockets]
        all_of += [("accept", sock) for sock in accepting]
        single = ("operator", self.operators.unix), ("operator_tcp", self.operators.tcp), ("health", self.health)
        return all_of + [(name, sock) for name, sock in single if sock is not None]

    def accepting(self, number: int, workers: int) -> list[socket.socket]:
        """Return copies of what a worker shall accept from; for the other addresses it opens sockets of its own.

        The queues of a proxy with more workers are spread over these.
        """
        return [sock.dup() for sock in (*self.listening.listening, *self._adopted[number - 1 :: workers])]

    def settle(self) -> None:
        """Close what was adopted: the workers have it, and one that is replaced opens its own."""
        for sock in self._adopted:
            sock.close()
        self._adopted.clear()

    def close_health(self) -> None:
        if self.health is not None:
            self.health.close()

    def close_in_child(self) -> None:
        # A copy would keep the ports taken after the supervisor has ended. The admin API's are for all workers.
        self.listening.close()
        self.settle()
        self.close_health()


def _open_health(settings: Settings, handed: HandedSockets) -> socket.socket | None:
    if settings.health_address is None:
        return None
    try:
        given = handed.take("health", settings.health_address)
        return given or socket.create_server(settings.health_address, backlog=BACKLOG)
    except OSError as error:
        problem = unusable("health_listen", *settings.health_address, error)
        # Only an address that somebody chose must work: a second proxy on this machine need not set another.
        if "health_listen" in settings.model_fields_set:
            raise problem from error
        log.warning("health and metrics are not served", error=str(problem))
        return None
