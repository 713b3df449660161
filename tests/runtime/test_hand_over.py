"""Who may take over: the owner of the state folder who knows its key, and nobody who is only near."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.runtime import hand_over as module
from proxy.runtime.hand_over import MAX_PEERS, HandOver, own_command
from proxy.runtime.take_over import SOCKET, Offer, proof_of, receive, send, state_key
from proxy.system.handed_sockets import HandedSockets


class Old:
    """A proxy that can be taken over from, as far as this goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: list[int] = []
        self.settled = True
        self.door = HandOver(folder, self._offer, self.taken.append, HandedSockets(), lambda: self.settled)

    def _offer(self) -> Offer:
        return Offer([("listen", self.door.listener.fileno())], [1, 2], "shared")

    def turn(self) -> None:
        """Do what the supervisor's loop does when something is ready."""
        for number in self.door.interests():
            self.door.attend(number)
        self.door.expire()

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(5)
        sock.connect(str(self.folder / SOCKET))
        self.turn()
        return sock

    def ask(self, sock: socket.socket, want: str = "take_over", key: bytes | None = None) -> dict[str, object]:
        challenge = receive(sock)[0]["challenge"]
        send(sock, {"want": want, "proof": proof_of(key or state_key(self.folder), challenge, want)})
        self.turn()
        answer, descriptors = receive(sock)
        for number in descriptors:
            os.close(number)
        return answer


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    one = Old(tmp_path)
    yield one
    one.door.close()


def test_a_worker_that_is_starting_is_waited_for_and_none_starts_after_the_offer(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.settled = False
    sock = old.connect()
    challenge = receive(sock)[0]["challenge"]
    send(sock, {"want": "take_over", "proof": proof_of(state_key(old.folder), challenge, "take_over")})
    old.turn()
    sock.settimeout(0.1)
    with pytest.raises(TimeoutError):
        receive(sock)
    assert not old.door.under_way
    monkeypatch.setattr(module, "SETTLE_SECONDS", -1.0)  # it is not waited for without end
    old.turn()
    answer, descriptors = receive(sock)
    for number in descriptors:
        os.close(number)
    assert "offer" in answer
    assert old.door.under_way
    sock.close()
    old.turn()
    assert not old.door.under_way, "it failed, and this proxy goes on as before"


def test_who_knows_the_key_gets_the_offer_and_ends_the_old_one(old: Old) -> None:
    sock = old.connect()
    answer = old.ask(sock)
    assert answer["offer"] == {
        "purposes": ["listen", "takeover"],
        "logs": [1, 2],
        "shared_calls": "shared",
        "pid": os.getpid(),
    }
    send(sock, {"serves": True})
    old.turn()
    assert receive(sock)[0] == {"yours": True}
    assert old.taken == [os.getpid()]
    assert old.door.interests() == []
    old.door.close()
    assert (old.folder / SOCKET).exists(), "the new one serves it"
    sock.close()


def test_a_wrong_key_or_a_wish_that_nobody_knows_is_refused(old: Old) -> None:
    sock = old.connect()
    assert "does not know the key" in str(old.ask(sock, key=b"x" * 32)["refused"])
    sock.close()
    sock = old.connect()
    assert "'everything'" in str(old.ask(sock, want="everything")["refused"])
    sock.close()
    # A proof for one wish is none for another, and none for another challenge.
    sock = old.connect()
    challenge = receive(sock)[0]["challenge"]
    send(sock, {"want": "take_over", "proof": proof_of(state_key(old.folder), challenge, "restart")})
    old.turn()
    assert "refused" in receive(sock)[0]
    sock.close()
    assert old.taken == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_nothing_even_where_the_folder_is_open(old: Old) -> None:
    for path in (*reversed(old.folder.relative_to("/").parents), old.folder.relative_to("/")):
        Path("/", path).chmod(Path("/", path).stat().st_mode | 0o011)
    (old.folder / SOCKET).chmod(0o666)
    ready, tell = os.pipe()
    if (pid := os.fork()) == 0:
        os.setuid(65534)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.settimeout(5)
            sock.connect(str(old.folder / SOCKET))
            os.write(tell, b"c")
            os._exit(0 if sock.recv(100) == b"" else 1)
        except ConnectionResetError:
            os._exit(0)
        except OSError:
            os._exit(2)
    assert os.read(ready, 1) == b"c"
    old.turn()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(old.door.interests()) == 1, "it was not let in"
    os.close(ready)
    os.close(tell)


def test_peers_are_few_and_short_lived_and_none_holds_the_loop_up(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = [old.connect() for _ in range(MAX_PEERS)]
    late = old.connect()
    assert late.recv(10) == b""
    late.close()
    later = time.monotonic() + module.PROOF_SECONDS + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    old.turn()
    assert len(old.door.interests()) == 1
    for sock in crowd:
        sock.close()


def test_one_that_ends_or_fails_leaves_the_way_free(old: Old) -> None:
    first = old.connect()
    old.ask(first)
    second = old.connect()
    assert "is taking over already" in str(old.ask(second)["refused"])
    second.close()
    send(first, {"failed": "a bad policy"})
    old.turn()
    assert first.recv(10) == b""
    first.close()
    third = old.connect()
    assert "offer" in old.ask(third)
    third.close()
    old.turn()
    assert old.taken == []
    assert len(old.door.interests()) == 1


def test_descriptors_and_nonsense_from_a_peer_are_dropped(old: Old) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  names of what may be gone
    sock = old.connect()
    receive(sock)
    socket.send_fds(sock, [b"\xff{"], [0, 1, 2])
    old.turn()
    assert sock.recv(10) == b""
    sock.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_next_one_is_started_as_this_one_was() -> None:
    script = own_command(["/opt/interlock/bin/interlock", "up", "--workers", "2"])
    assert script[1:] == ["/opt/interlock/bin/interlock", "up", "--workers", "2", "--take-over"]
    module = own_command(["/x/proxy/cli.py", "up", "--take-over"])
    assert module[1:] == ["-m", "proxy.cli", "up", "--take-over"]
