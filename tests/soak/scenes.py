"""A real proxy under long or odd load, and what becomes of its memory: many calls, idle connections, slow heads."""

from __future__ import annotations

import contextlib
import itertools
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.faults.load import request
from tests.support.harness import Interlock

KB = 1024
MAX_SLOPE = 20.0
"""KB that all processes together may grow by in 1000 calls and still be called flat: 20 bytes a call are less than
anything takes that is kept of one. Memory comes in pages, so there is some."""
CLIENTS = 8
ANSWER_SECONDS = 30.0


def memory(interlock: Interlock) -> int:
    """Return the bytes that the proxy's processes have made: each its own, and of what they share its part.

    Programs and libraries are left out: how much of them counts as ours changes with what else runs.
    """
    return _sum(interlock, "Pss_Anon:")


def pages(interlock: Interlock) -> int:
    """Return the bytes of all pages that the processes hold, those that they share counted for each of them.

    A page that was shared and is written to counts before and after: what grows is new.
    """
    return _sum(interlock, "Anonymous:")


def _sum(interlock: Interlock, figure: str) -> int:
    return sum(_figure(pid, figure) for pid in (interlock.process.pid, *interlock.worker_pids))


def _figure(pid: int, figure: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * KB for line in lines if line.startswith(figure))


@dataclass(frozen=True)
class Soak:
    """Samples of memory over calls, and the slope through those after the warm-up."""

    calls: int
    seconds: float
    samples: list[tuple[int, int]]

    @property
    def slope(self) -> float:
        """KB per 1000 calls, over the second half: what is kept for a while has filled up by then.

        The median over all pairs of samples, which one step up or down does not move.
        """
        settled = [sample for sample in self.samples if sample[0] >= self.calls / 2]
        pairs = [(one, two) for one, two in itertools.combinations(settled, 2) if one[0] != two[0]]
        slopes = [(two[1] - one[1]) / (two[0] - one[0]) for one, two in pairs]
        return statistics.median(slopes) * 1000 / KB if slopes else 0.0

    @property
    def flat(self) -> bool:
        return self.slope <= MAX_SLOPE


def soak(interlock: Interlock, server_port: int, calls: int, tell: Callable[[int, int], None], every: int) -> Soak:
    """Make so many calls from a few clients; sample memory `every` so many, and tell of it."""
    done, lock, samples = 0, threading.Lock(), [(0, pages(interlock))]
    failures: list[Exception] = []

    def client(share: int, number: int) -> None:
        nonlocal done
        try:
            with _Caller(interlock.port, server_port) as caller:
                for call in range(share):
                    caller.call(f"{number}-{call}")
                    with lock:
                        done += 1
                        if done % every == 0:
                            samples.append((done, pages(interlock)))
                            tell(*samples[-1])
        except Exception as error:  # noqa: BLE001  told by the one who waits
            failures.append(error)

    started = time.monotonic()
    threads = [threading.Thread(target=client, args=(calls // CLIENTS, number)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    samples.append((done, pages(interlock)))
    if failures:
        raise failures[0]
    return Soak(done, time.monotonic() - started, samples)


class _Caller:
    """One kept connection of a client."""

    def __init__(self, port: int, server_port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        self._file = self._socket.makefile("rb")
        self._server_port = server_port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def call(self, mark: str) -> None:
        self._socket.sendall(request(self._server_port, mark))
        length = 0
        while (line := self._file.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        answer = self._file.read(length)
        assert mark.encode() in answer, f"no answer to {mark}: {answer[:200]!r}"


@contextlib.contextmanager
def crowd(port: int, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Hold so many connections that say `sent` and no more."""
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)))
            held[-1].sendall(sent)
        yield held


def answered(port: int, server_port: int) -> None:
    """Make a call and see its answer."""
    with _Caller(port, server_port) as caller:
        caller.call("between")


SLOW_HEAD = b"POST http://127.0.0.1:9/mcp HTTP/1.1\r\nHost: 127.0.0.1:9\r\nX-Slow: "
