"""Signals wake a poll and come in their order."""

from __future__ import annotations

import os
import select
import signal

from proxy.runtime.signal_queue import SignalQueue


def test_signals_wake_the_poll_and_are_taken_in_order_and_handlers_come_back() -> None:
    queue, before = SignalQueue(), signal.getsignal(signal.SIGUSR1)
    with queue.catching((signal.SIGUSR1, signal.SIGUSR2)):
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert select.select([queue], [], [], 5)[0]
        queue.drain()
        queue.drain()
        assert sorted(queue.take()) == [signal.SIGUSR1, signal.SIGUSR2]
        assert list(queue.take()) == []
    assert signal.getsignal(signal.SIGUSR1) is before
    queue.close()
