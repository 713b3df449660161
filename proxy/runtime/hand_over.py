"""The running proxy's side of a take-over (take_over.py): it hands its sockets on and goes on until the other serves.

For the supervisor's poll loop: it never waits for a peer. One process at a time may take over.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.admin_api.sockets import listen_unix
from proxy.runtime.take_over import PROTOCOL, SOCKET, Offer, peer_of, proof_of, receive, send, state_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.system.handed_sockets import HandedSockets

log = structlog.get_logger("interlock.supervisor")

MAX_PEERS: Final = 8
PROOF_SECONDS: Final = 5.0
# A start compiles patterns, and may wait for the store: so long may a process that takes over take to serve.
START_SECONDS: Final = 120.0
SETTLE_SECONDS: Final = 5.0  # and so long may a worker that was replaced a moment ago


@dataclass(slots=True, eq=False)
class _Peer:
    sock: socket.socket
    pid: int
    until: float
    challenge: str
    want: str = ""  # empty until it has proved itself
    given: bool = False  # whether it has the sockets


class HandOver:
    """Waits for a process that takes over. `offer` is asked for what to hand on; `done` is called when it is taken."""

    def __init__(
        self,
        state_dir: Path,
        offer: Callable[[], Offer],
        done: Callable[[int], None],
        handed: HandedSockets,
        settled: Callable[[], bool] = lambda: True,
    ) -> None:
        """Listen, or go on with the socket that was handed on.

        `settled` says whether `offer` has all sockets: not so while a worker starts that has not said what it
        listens on. What came to a queue that was not handed on would be lost with it.
        """
        self._settled = settled
        self._key = state_key(state_dir)
        self._path = state_dir / SOCKET
        self._offer = offer
        self._done = done
        self.listener = handed.take("takeover") or listen_unix(self._path, socket.SOCK_SEQPACKET)
        self.listener.setblocking(False)
        self._peers: dict[int, _Peer] = {}
        self._started: int | None = None  # the process that was started for `interlock restart`
        self.handed_on = False

    def interests(self) -> list[int]:
        """Return what the supervisor waits for."""
        return [] if self.handed_on else [self.listener.fileno(), *self._peers]

    @property
    def under_way(self) -> bool:
        """Whether a process has the sockets and may serve at any moment: nobody may listen on others now."""
        return any(peer.given for peer in self._peers.values())

    def attend(self, number: int) -> bool:
        """Handle a socket that is ready; return whether it is one of these."""
        if not self.handed_on and number == self.listener.fileno():
            self._accept()
        elif (peer := self._peers.get(number)) is not None:
            self._hear(peer)
        else:
            return False
        return True

    def expire(self) -> None:
        """Close what took too long, and see what became of a process that was started."""
        now = time.monotonic()
        for peer in [peer for peer in self._peers.values() if peer.until < now]:
            self._lose(peer, "it took too long")
        for peer in [peer for peer in self._peers.values() if peer.want == "take_over" and not peer.given]:
            if self._settled() or peer.until - START_SECONDS + SETTLE_SECONDS < now:
                self._give(peer)
        if self._started is not None:
            pid, status = os.waitpid(self._started, os.WNOHANG)
            if pid:
                self._started, code = None, os.waitstatus_to_exitcode(status)
                self._tell_waiting({"failed": f"the new process ended with exit code {code}; the proxy's log says why"})

    def close(self) -> None:
        """Close everything; the socket's name goes unless another process serves it now."""
        for peer in list(self._peers.values()):
            self._drop(peer)
        self.listener.close()
        if not self.handed_on:
            self._path.unlink(missing_ok=True)

    def close_in_child(self) -> None:
        for peer in self._peers.values():
            peer.sock.close()
        self.listener.close()

    def _accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        pid, uid = peer_of(sock)
        # The folder keeps other users out. This holds where somebody has opened it, and in a container's namespaces.
        if uid != os.geteuid() or len(self._peers) >= MAX_PEERS:
            log.warning("a take-over is refused", pid=pid, uid=uid)
            sock.close()
            return
        peer = _Peer(sock, pid, time.monotonic() + PROOF_SECONDS, secrets.token_hex(16))
        self._peers[sock.fileno()] = peer
        self._say(peer, {"protocol": PROTOCOL, "challenge": peer.challenge})

    def _hear(self, peer: _Peer) -> None:
        try:
            message, descriptors = receive(peer.sock)
        except BlockingIOError:
            return
        except OSError:
            message, descriptors = {}, []
        for number in descriptors:
            os.close(number)
        if not message:
            self._lose(peer, "it ended")
        elif not peer.want:
            self._admit(peer, message)
        elif peer.want == "take_over":
            self._conclude(peer, message)

    def _admit(self, peer: _Peer, message: dict[str, Any]) -> None:
        """Give a process what it wants once it has proved that it belongs to the state folder."""
        want = message.get("want")
        if want not in ("take_over", "restart"):
            self._refuse(peer, f"it asks for {want!r}, which this version does not know")
        elif not hmac.compare_digest(proof_of(self._key, peer.challenge, want), str(message.get("proof"))):
            self._refuse(peer, "it does not know the key of the state folder")
        elif other := self._other(want):
            self._refuse(peer, f"process {other.pid} is taking over already; wait until it serves or has failed")
        else:
            peer.want, peer.until = want, time.monotonic() + START_SECONDS
            if want == "restart":
                self._start_another(peer)
            elif self._settled():
                self._give(peer)

    def _other(self, want: str) -> _Peer | None:
        """Return the process that stands in the way of another, if one does."""
        taking = {"take_over"} if want == "take_over" else {"take_over", "wait"}
        return next((each for each in self._peers.values() if each.want in taking), None)

    def _give(self, peer: _Peer) -> None:
        peer.given = True
        offer = self._offer()
        numbers = [*offer.descriptors, ("takeover", self.listener.fileno())]
        value = {
            "purposes": [name for name, _ in numbers],
            "logs": list(offer.logs),
            "shared_calls": offer.shared_calls,
            "pid": os.getpid(),
        }
        log.info("another process is taking over", pid=peer.pid)
        self._say(peer, {"offer": value}, [number for _, number in numbers])

    def _conclude(self, peer: _Peer, message: dict[str, Any]) -> None:
        if message.get("serves") is True:
            self.handed_on = True
            self._tell_waiting({"restarted": peer.pid})
            # Before the answer: what the new one does with it must not meet what this one still does.
            self._done(peer.pid)
            self._say(peer, {"yours": True})
            self._drop(peer)
        else:
            self._lose(peer, str(message.get("failed") or "it said something else than that it serves"))

    def _start_another(self, peer: _Peer) -> None:
        """Start a proxy as this one was started, from the files that are installed now; it takes over by itself."""
        peer.want = "wait"  # so that the new process is let in
        words = own_command(sys.argv)
        try:
            self._started = os.posix_spawn(words[0], words, os.environ)  # its output goes where that of this one goes
        except OSError as error:
            self._refuse(peer, f"{words[0]} cannot be started: {error.strerror}")

    def _lose(self, peer: _Peer, why: str) -> None:
        if peer.want == "take_over":
            log.error("the take-over failed, this proxy goes on", pid=peer.pid, why=why)
            self._tell_waiting({"failed": why})
        self._drop(peer)

    def _refuse(self, peer: _Peer, why: str) -> None:
        log.warning("a take-over is refused", pid=peer.pid, why=why)
        self._say(peer, {"refused": why})
        self._drop(peer)

    def _tell_waiting(self, result: dict[str, Any]) -> None:
        for peer in [each for each in self._peers.values() if each.want == "wait"]:
            self._say(peer, result)
            self._drop(peer)

    def _say(self, peer: _Peer, value: dict[str, Any], descriptors: list[int] | None = None) -> None:
        try:
            send(peer.sock, value, descriptors or [])
        except OSError as error:
            log.warning("a process that takes over cannot be answered", pid=peer.pid, error=str(error))

    def _drop(self, peer: _Peer) -> None:
        self._peers.pop(peer.sock.fileno(), None)
        peer.sock.close()


def own_command(argv: Sequence[str]) -> list[str]:
    """Return the command line that starts another proxy like this one, which takes over."""
    program = [argv[0]] if Path(argv[0]).name == "interlock" else ["-m", "proxy.cli"]
    taking = [] if "--take-over" in argv else ["--take-over"]
    return [sys.executable, *program, *argv[1:], *taking]
