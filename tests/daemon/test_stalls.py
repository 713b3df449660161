"""One client's nasty body does not make the others wait.

What they wait is told by what the proxy works meanwhile, not by a clock: a busy machine makes everybody wait.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.daemon.conftest import Pair
from tests.support.harness import send_raw
from tests.support.machine_pace import slowness
from tests.support.raw_socket import parse_answers
from tests.support.timeouts import PATIENCE

SIZE = (1 << 24) - 16
NASTY = {
    "objects": b"[" + b"{}," * (SIZE // 3 - 1) + b"{}]",
    "overlong": b"{" + b"\xc0\xaf" * (SIZE // 2),
    "blanks": b'{x"' + b" " * SIZE,
    "values": b"[" + b'{"method":"tools-call "},' * 250_000 + b"1]",
}


def worked(pair: Pair) -> float:
    """Return the processor time that the workers have had, in seconds."""
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pair.interlock.worker_pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def request(pair: Pair, method: str, body: bytes = b"") -> bytes:
    head = f"{method} http://{pair.target}/echo HTTP/1.1\r\nHost: {pair.target}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask(pair: Pair, data: bytes) -> int:
    answers = parse_answers(send_raw("127.0.0.1", pair.interlock.port, [data], limit=1.5 * PATIENCE))
    assert answers, "no answer"
    return answers[0].status


@pytest.mark.parametrize("body", NASTY.values(), ids=NASTY)
def test_others_are_answered_while_a_nasty_body_is_judged(pair: Pair, body: bytes) -> None:
    waits: list[float] = []
    begun = threading.Event()

    def send() -> int:
        begun.set()
        return ask(pair, request(pair, "POST", body))

    with ThreadPoolExecutor(1) as pool:
        nasty = pool.submit(send)
        assert begun.wait(PATIENCE)
        while not nasty.done() or not waits:
            start = worked(pair)
            assert ask(pair, request(pair, "GET")) == 200
            waits.append(worked(pair) - start)
        assert nasty.result(PATIENCE)
    # Who waits for the whole body waits for nearly all that was worked; a slow machine makes both longer.
    assert max(waits) < max(0.5 * slowness(), sum(waits) / 2)
