"""A balancer that sends each request to the next replica, as one in front of a fleet does: HTTP/1 on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Sequence
from typing import Self

from tests.support.timeouts import PATIENCE

CONNECTION = re.compile(rb"\r\n(?:proxy-)?connection: [^\r]*", re.IGNORECASE)
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
PIECE = 1 << 16


class Balancer:
    """Round robin by request. One that does not accept is passed over; what a replica cuts is cut."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self.port = 0
        self.passed = 0
        """How many requests found a replica that did not accept."""
        self.cuts: list[tuple[int, float]] = []
        """Which replicas closed a connection before they answered, and when."""
        self._next = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(_end_all())
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._pass_on(reader, writer)
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"\r\nupgrade:" not in head.lower():
            # So that the connection carries this request alone.
            head = CONNECTION.sub(b"", head).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        length = LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
        from_replica, to_replica, port = await self._connect()
        try:
            to_replica.write(head + body)
            back = asyncio.create_task(_answer(from_replica, writer))
            there = asyncio.create_task(_copy(reader, to_replica))  # a WebSocket's frames, or the end of the client
            await asyncio.wait((back, there), return_when=asyncio.FIRST_COMPLETED)
            if there.done() and not back.done():
                back.cancel()
            there.cancel()
            ended, _ = await asyncio.gather(back, there, return_exceptions=True)
            if isinstance(ended, OSError | EOFError):
                self.cuts.append((port, time.monotonic()))
        finally:
            to_replica.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, int]:
        for _ in range(100):
            port = self.ports[self._next % len(self.ports)]
            self._next += 1
            try:
                return *await asyncio.open_connection("127.0.0.1", port), port
            except OSError:
                self.passed += 1
                await asyncio.sleep(0.01)
        raise ConnectionRefusedError("no replica accepts")


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass an answer on, and say that it is the last one of its connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 101"):
        head = CONNECTION.sub(b"", head).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    writer.write(head)
    await _copy(reader, writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
