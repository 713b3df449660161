"""The sockets of a proxy: opened, or taken from the proxy before."""

from __future__ import annotations

import contextlib
from pathlib import Path

from proxy.config import Settings
from proxy.runtime.proxy_sockets import ProxySockets
from proxy.system.handed_sockets import HandedSockets
from proxy.system.listen_ports import listen_as


def settings(folder: Path, workers: int) -> Settings:
    return Settings(
        state_dir=folder,
        policy=folder / "policy.yaml",
        listen="127.0.0.1:0",
        health_listen="127.0.0.1:0",
        operator_listen="127.0.0.1:0",
        workers=workers,
    )


def test_the_next_proxy_has_the_same_addresses_and_every_queue_one_worker(tmp_path: Path) -> None:
    with contextlib.ExitStack() as closing:
        old = ProxySockets(settings(tmp_path, 3), HandedSockets(), closing.callback)
        queues = [sock for _ in range(3) for sock in listen_as(old.listening.addresses, ())]
        for sock in queues:
            closing.callback(sock.close)
        handed = HandedSockets((name, sock.dup()) for name, sock in old.named(queues))
        new = ProxySockets(settings(tmp_path, 2), handed, closing.callback)
        handed.close()
        assert new.listening.addresses == old.listening.addresses
        assert (new.health_address, new.operators.addresses) == (old.health_address, old.operators.addresses)
        copies = [new.accepting(number, 2) for number in (1, 2)]
        assert [len(each) for each in copies] == [2, 1]
        for each in copies:
            served = listen_as(new.listening.addresses, each)
            assert len(served) == len(each), "it needs none of its own"
            for sock in (*each, *served):
                sock.close()
        new.settle()
        assert new.accepting(1, 2) == []
        new.operators.handed_on = True


def test_what_does_not_fit_the_settings_is_opened_anew(tmp_path: Path) -> None:
    with contextlib.ExitStack() as closing:
        old = ProxySockets(settings(tmp_path, 1), HandedSockets(), closing.callback)
        handed = HandedSockets((name, sock.dup()) for name, sock in old.named([]))
        other = settings(tmp_path, 1).model_copy(update={"listen": "127.0.0.2:0", "health_listen": "off"})
        new = ProxySockets(other, handed, closing.callback)
        handed.close()
        assert new.listening.addresses[0][0] == "127.0.0.2"
        assert new.health is None
