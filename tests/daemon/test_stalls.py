"""One client's nasty body does not make the others wait."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.daemon.conftest import Pair
from tests.harness import send_raw
from tests.raw import parse_answers

SIZE = (1 << 24) - 16
NASTY = {
    "objects": b"[" + b"{}," * (SIZE // 3 - 1) + b"{}]",
    "overlong": b"{" + b"\xc0\xaf" * (SIZE // 2),
    "blanks": b'{x"' + b" " * SIZE,
    "values": b"[" + b'{"method":"tools-call "},' * 500_000 + b"1]",
}


def request(pair: Pair, method: str, body: bytes = b"") -> bytes:
    head = f"{method} http://{pair.target}/echo HTTP/1.1\r\nHost: {pair.target}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask(pair: Pair, data: bytes, limit: float) -> int:
    answers = parse_answers(send_raw("127.0.0.1", pair.interlock.port, [data], limit=limit))
    assert answers, "no answer"
    return answers[0].status


@pytest.mark.parametrize("body", NASTY.values(), ids=NASTY)
def test_others_are_answered_while_a_nasty_body_is_judged(pair: Pair, body: bytes) -> None:
    waits: list[float] = []
    begun = threading.Event()

    def send() -> int:
        begun.set()
        return ask(pair, request(pair, "POST", body), 60)

    with ThreadPoolExecutor(1) as pool:
        nasty = pool.submit(send)
        assert begun.wait(10)
        while not nasty.done() or not waits:
            start = time.monotonic()
            assert ask(pair, request(pair, "GET"), 20) == 200
            waits.append(time.monotonic() - start)
        assert nasty.result(60)
    assert max(waits) < 3
