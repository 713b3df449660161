"""Many calls at once through a proxy, each with a mark of its own, and what became of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

CLIENTS = 16
ANSWER_LIMIT = 10.0
PAUSE = 0.01


@dataclass
class Seen:
    """What clients saw: which calls the server answered, how many were refused, and how many had no answer."""

    acknowledged: set[str] = field(default_factory=set)
    refused: int = 0
    unanswered: int = 0
    unconnected: int = 0
    reasons: set[str] = field(default_factory=set)


class Load:
    """Calls in a loop from several clients until it is stopped; marks are unique over the life of `marks`."""

    def __init__(self, port: int, server_port: int, marks: Iterator[int], seen: Seen) -> None:
        self._port, self._server_port = port, server_port
        self._marks, self._seen = marks, seen
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(3 * ANSWER_LIMIT)
        assert not self._thread.is_alive(), "the clients do not end"

    async def _run(self) -> None:
        await asyncio.gather(*(self._client() for _ in range(CLIENTS)))

    async def _client(self) -> None:
        while not self._stop.is_set():
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                self._seen.unconnected += 1
                await asyncio.sleep(PAUSE)
                continue
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
                keeps = True
                while keeps and not self._stop.is_set():
                    keeps = await asyncio.wait_for(self._call(reader, writer), ANSWER_LIMIT)
            writer.close()

    async def _call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Make a call; return whether the connection stays open for another one."""
        mark = f"mark-{next(self._marks)}"
        self._seen.unanswered += 1
        writer.write(request(self._server_port, mark))
        head, body = await _read(reader)
        answer = json.loads(body)
        self._seen.unanswered -= 1
        result = answer.get("result", {})
        denial = result.get("_meta", {}).get("mcp-interlock/denial") or answer.get("error", {}).get("data")
        if answer.get("id") == mark and result and denial is None:
            self._seen.acknowledged.add(mark)
        else:
            self._seen.refused += 1
            self._seen.reasons.add((denial or {}).get("reason", "no reason"))
            await asyncio.sleep(PAUSE)
        return "\r\nconnection: close\r\n" not in head


def request(server_port: int, mark: str) -> bytes:
    """Return a call of `echo` with a mark, as a client of a proxy sends it."""
    params = {"name": "echo", "arguments": {"mark": mark, "text": "x" * 500}}
    body = json.dumps({"jsonrpc": "2.0", "id": mark, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST http://127.0.0.1:{server_port}/mcp HTTP/1.1\r\nHost: 127.0.0.1:{server_port}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        f"MCP-Protocol-Version: 2025-06-18\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _read(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line for line in head.split("\r\n") if line.startswith("content-length:"))
    return head, await reader.readexactly(int(length.partition(":")[2]))


def wait_until(holds: object, limit: float = 60.0) -> None:
    """Wait until a condition (a function) holds. Raises AssertionError where it does not in time."""
    assert callable(holds)
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.05)


def marks() -> Iterator[int]:
    """Return numbers that no call has had."""
    return itertools.count(1)
