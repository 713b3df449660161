"""A new proxy takes the sockets of the one that runs on its state folder, and serves before the other one ends.

This is the new one's side; hand_over.py has the other. Both prove that they belong to the state folder: the socket is
its owner's, the kernel tells who is at the other end, and the new one knows a key that lies in the folder. Until it
says that it serves, the old one goes on as if nobody had asked.

    old: {"challenge": …, "protocol": 1}
    new: {"proof": …, "want": "take_over" | "restart", "version": …}
    old: {"offer": {…}} and the descriptors           or {"refused": why}
    new: {"serves": true}                              or {"failed": why}, or it ends
    old: {"yours": true}, and drains
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.admin_api.sockets import connect_unix
from proxy.errors import ConfigError
from proxy.system.handed_sockets import HandedSockets
from proxy.system.package_data import version
from proxy.system.secret_files import read_or_make_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = structlog.get_logger("interlock.supervisor")

SOCKET: Final = "takeover.sock"  # in the state folder
PROTOCOL: Final = 1
KEY_BYTES: Final = 32
MAX_MESSAGE: Final = 1 << 16
MAX_DESCRIPTORS: Final = 250  # what one message may carry, by the kernel
SECONDS: Final = 10.0  # the old proxy answers from its loop, which a loaded machine may hold up
LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class Offer:
    """What the old proxy hands on: descriptors by purpose, and what else the new one has to know."""

    descriptors: Sequence[tuple[str, int]]
    logs: Sequence[int]  # the numbers of the local logs that its workers write
    shared_calls: str | None = None  # the folder of calls that its workers share
    pid: int = 0


def state_key(state_dir: Path) -> bytes:
    return read_or_make_key(state_dir / "keys" / "takeover.key", KEY_BYTES)


def proof_of(key: bytes, challenge: str, want: str) -> str:
    return hmac.digest(key, f"{want} {challenge}".encode(), "sha256").hex()


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end of a unix socket, as the kernel saw them connect."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def send(sock: socket.socket, value: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message. Raises OSError."""
    socket.send_fds(sock, [json.dumps(value).encode()], descriptors, socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return one message and its descriptors; an empty one where the other side is gone. Raises OSError."""
    data, descriptors, _, _ = socket.recv_fds(sock, MAX_MESSAGE, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        value = json.loads(data) if data else {}
    except ValueError:
        value = {}
    return value if isinstance(value, dict) else {}, list(descriptors)


class TakeOver:
    """A take-over that is under way. Close it once it is over, however it ended."""

    def __init__(self, sock: socket.socket, offer: dict[str, Any], descriptors: Sequence[int]) -> None:
        self._sock = sock
        names = list(offer["purposes"])
        if len(names) != len(descriptors):
            raise ConfigError(f"{len(descriptors)} of {len(names)} descriptors came from the running proxy; try again")
        sockets = []
        self.lock: int | None = None
        for name, number in zip(names, descriptors, strict=True):
            if name == LOCK:
                self.lock = number
            else:
                sockets.append((str(name), socket.socket(fileno=number)))
        self.handed = HandedSockets(sockets)
        self.logs = [int(number) for number in offer["logs"]]
        self.shared_calls: str | None = offer.get("shared_calls")
        self.pid = int(offer["pid"])

    @classmethod
    def begin(cls, state_dir: Path) -> TakeOver | None:
        """Ask the proxy that runs on a state folder for its sockets; None: none runs there. Raises ConfigError."""
        sock = knock(state_dir, "take_over")
        if sock is None:
            return None
        try:
            answer, descriptors = receive(sock)
            _check("offer" in answer, f"the running proxy does not hand over: {answer.get('refused') or 'no answer'}")
            return cls(sock, answer["offer"], descriptors)
        except OSError as error:
            sock.close()
            raise ConfigError(f"the running proxy does not hand over: {error}; try again, or stop it") from error
        except BaseException:
            sock.close()
            raise

    def serves(self) -> bool:
        """Say that this proxy serves; return whether the old one confirms that it ends.

        Where it does not answer, it has ended, or ends as soon as it can: this one goes on in any case.
        """
        try:
            send(self._sock, {"serves": True})
            return bool(receive(self._sock)[0].get("yours"))
        except OSError as error:
            log.warning("the proxy before this one does not answer", pid=self.pid, error=str(error))
            return False

    def failed(self, why: str) -> None:
        """Say why this proxy does not take over."""
        try:
            send(self._sock, {"failed": why[: MAX_MESSAGE // 4]})
        except OSError:
            log.debug("nobody hears that the take-over failed")

    def close(self) -> None:
        self.handed.close()
        self._sock.close()


def knock(state_dir: Path, want: str) -> socket.socket | None:
    """Connect to the proxy that runs on a state folder, and prove to belong there; None: none runs.

    Raises ConfigError where it cannot be used.
    """
    try:
        sock = connect_unix(state_dir / SOCKET, SECONDS, socket.SOCK_SEQPACKET)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise ConfigError(f"{state_dir / SOCKET}: {error.strerror}; run this as the user of the proxy") from error
    try:
        same = peer_of(sock)[1] == os.geteuid()
        _check(same, f"{state_dir / SOCKET}: the process there runs as another user; run this as that user")
        asked, _ = receive(sock)
        known = asked.get("protocol") == PROTOCOL
        _check(known, "the running proxy is of a version that cannot hand over to this one; stop it, then start")
        proof = proof_of(state_key(state_dir), str(asked.get("challenge")), want)
        send(sock, {"proof": proof, "want": want, "version": version()})
    except OSError as error:
        sock.close()
        raise ConfigError(f"the running proxy does not answer: {error}; try again, or stop it") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _check(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise ConfigError(otherwise)
