"""The load client: `python -m bench.load SPEC`, bare protocols on bare sockets, some tens of microseconds a call.

It opens its connections (through a proxy's tunnel, with TLS, as SPEC says), makes one call on each, prints `ready`,
waits for a line, makes calls for as long as SPEC says, and prints what came of it as JSON. So whoever measures the
proxy's processor time can leave out what it took to connect. Standard library, with uvloop where it is installed.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from bench.histogram import Histogram
from bench.payloads import MARK, call

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
LIMIT = 20.0
GRACE = 10.0
ENOUGH = 1024
"""So much of an answer is looked at: MARK stands near its beginning."""


@dataclass(frozen=True)
class Spec:
    """What to do."""

    port: int
    """Where to connect to, on loopback."""
    authority: str
    """The server that is meant."""
    path: str
    connections: int = 1
    seconds: float = 1.0
    tunnel: bool = False
    """Whether `port` is a proxy's that is asked to CONNECT."""
    tls: bool = False
    http2: bool = False
    fresh: bool = False
    """Whether each call gets a connection of its own."""
    download: bool = False
    """Whether it is a GET of something large: one a connection, and done."""
    calls: int = 0
    """How many calls to make in all, instead of for how long."""

    @property
    def context(self) -> ssl.SSLContext | None:
        """Return the TLS of the client. Nothing is verified: that would cost the client, who is not measured."""
        if not self.tls:
            return None
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"] if self.http2 else ["http/1.1"])
        return context

    def request(self) -> bytes:
        """Spell one request."""
        if self.download:
            return f"GET {self.path} HTTP/1.1\r\nHost: {self.authority}\r\nAccept: */*\r\n\r\n".encode()
        body = call()
        end = "Connection: close\r\n" if self.fresh else ""
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.authority}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\n{end}"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body


class Tally:
    """What came of the calls, and whether there is time for more."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.times = Histogram()
        self.failures: dict[str, int] = {}
        self.received = 0
        self.finished = 0
        self.opened = 0
        self._left = spec.calls
        self._end = 0.0
        self.open = False

    def start(self) -> None:
        """Begin to count."""
        self.times, self.failures, self.received, self.finished, self.opened = Histogram(), {}, 0, 0, 0
        self._end = time.perf_counter() + self.spec.seconds
        self.open = True

    def more(self) -> bool:
        """Return whether another call is to be made."""
        if not self.open or time.perf_counter() >= self._end:
            return False
        if self.spec.calls:
            self._left -= 1
            return self._left >= 0
        return True

    def done(self, began: float, problem: str | None = None) -> None:
        """Count a call."""
        if not self.open:
            return
        self.finished += 1
        now = time.perf_counter()
        if problem:
            self.failures[problem] = self.failures.get(problem, 0) + 1
        elif now <= self._end:
            self.times.add(now - began)


class Answers(asyncio.Protocol):
    """One connection of HTTP/1.1. `answered` is set to the problem, or None, once an answer is whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._head = b""
        self._missing = -1
        self.answered: asyncio.Future[str | None] | None = None
        self.on_answer: Callable[[str | None], None] = self._settle
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def expect(self) -> asyncio.Future[str | None]:
        """Return what is done with the next answer."""
        self.answered = asyncio.get_running_loop().create_future()
        return self.answered

    def _settle(self, problem: str | None) -> None:
        if self.answered and not self.answered.done():
            self.answered.set_result(problem)

    def data_received(self, data: bytes) -> None:
        """Take what comes; know the end of an answer by its length or its last chunk."""
        self.received += len(data)
        if self._missing > 0:
            self._missing -= len(data)
            if len(self._head) < ENOUGH:
                self._head += data[:ENOUGH]
            if self._missing <= 0:
                self._whole()
            return
        self._parts.append(data)
        whole = data if len(self._parts) == 1 else b"".join(self._parts)
        end = whole.find(b"\r\n\r\n")
        if end < 0:
            return
        found = LENGTH.search(whole, 0, end + 2)
        if found:
            self._head = whole
            self._missing = int(found[1]) - (len(whole) - end - 4)
            if self._missing <= 0:
                self._whole()
        elif whole.endswith(b"0\r\n\r\n") or whole.startswith(b"HTTP/1.1 200 Connection established"):
            self._head = whole
            self._whole()

    def _whole(self) -> None:
        head, self._parts, self._head, self._missing = self._head, [], b"", -1
        problem = None if head.startswith(b"HTTP/1.1 200") else head.partition(b"\r\n")[0].decode("latin-1")
        if problem is None and MARK not in head and b" established" not in head[:40] and b"octet-stream" not in head:
            problem = "not the result"
        self.on_answer(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_answer(f"connection lost: {exc or 'closed'}")


async def connect(spec: Spec, context: ssl.SSLContext | None) -> Answers:
    """Open a connection, through the tunnel where there is one."""
    loop = asyncio.get_running_loop()
    early = context if context and not spec.tunnel else None
    _, protocol = await loop.create_connection(
        Answers, "127.0.0.1", spec.port, ssl=early, server_hostname="127.0.0.1" if early else None
    )
    if spec.tunnel:
        waiting = protocol.expect()
        protocol.transport.write(f"CONNECT {spec.authority} HTTP/1.1\r\nHost: {spec.authority}\r\n\r\n".encode())
        async with asyncio.timeout(LIMIT):
            if problem := await waiting:
                raise ConnectionError(problem)
        assert context
        inside = await loop.start_tls(protocol.transport, protocol, context, server_hostname="127.0.0.1")
        assert inside
        protocol.transport = inside
    return protocol


async def once(spec: Spec, context: ssl.SSLContext | None, tally: Tally, request: bytes) -> None:
    """Make one call on a connection of its own."""
    began = time.perf_counter()
    tally.opened += 1
    try:
        async with asyncio.timeout(LIMIT):
            protocol = await connect(spec, context)
            waiting = protocol.expect()
            protocol.transport.write(request)
            problem = await waiting
    except (OSError, TimeoutError) as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        tally.received += protocol.received
        protocol.on_answer = lambda _: None
        protocol.transport.close()
    tally.done(began, problem)


class Caller:
    """One connection that is kept: the next call goes out as soon as the last is answered."""

    def __init__(self, protocol: Answers, tally: Tally, request: bytes) -> None:
        self._protocol, self._tally, self._request = protocol, tally, request
        self._began = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Make calls until there is no more time."""
        self._protocol.on_answer = self._answered
        self._next()

    def _next(self) -> None:
        if self._tally.more():
            self._began = time.perf_counter()
            self._protocol.transport.write(self._request)
        else:
            self._end()

    def _answered(self, problem: str | None) -> None:
        self._tally.done(self._began, problem)
        if problem and problem.startswith("connection lost"):
            self._end()
        else:
            self._next()

    def _end(self) -> None:
        self._protocol.on_answer = lambda _: None
        self._tally.received += self._protocol.received
        if not self.ended.done():
            self.ended.set_result(None)


async def wait_for_go() -> None:
    """Say that everything is connected, and wait for a line."""
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def keep(spec: Spec, tally: Tally) -> None:
    """Make calls on connections that stay."""
    context, request = spec.context, spec.request()
    protocols = [await connect(spec, context) for _ in range(spec.connections)]
    for protocol in [] if spec.download else protocols:
        waiting = protocol.expect()
        protocol.transport.write(request)
        async with asyncio.timeout(LIMIT):
            if problem := await waiting:
                raise ConnectionError(problem)
        protocol.received = 0
    callers = [Caller(protocol, tally, request) for protocol in protocols]
    await wait_for_go()
    tally.start()
    for caller in callers:
        caller.begin()
    await asyncio.wait([caller.ended for caller in callers], timeout=spec.seconds + GRACE)
    for protocol in protocols:
        protocol.transport.close()


async def renew(spec: Spec, tally: Tally) -> None:
    """Make calls, each on a new connection."""
    context, request = spec.context, spec.request()
    await once(spec, context, tally, request)

    async def work() -> None:
        while tally.more():
            await once(spec, context, tally, request)

    await wait_for_go()
    tally.start()
    await asyncio.wait([asyncio.ensure_future(work()) for _ in range(spec.connections)], timeout=spec.seconds + GRACE)


async def run(spec: Spec) -> dict[str, object]:
    """Do what the spec says; return what came of it."""
    tally = Tally(spec)
    if spec.http2:
        from bench.http2 import multiplex  # noqa: PLC0415

        await multiplex(spec, tally, wait_for_go)
    else:
        await (renew if spec.fresh else keep)(spec, tally)
    return {
        "finished": tally.finished,
        "received": tally.received,
        "failures": tally.failures,
        "times": tally.times.counts,
    }


def main() -> None:
    """Do what the one argument says."""
    spec = Spec(**json.loads(sys.argv[1]))
    try:
        import uvloop  # noqa: PLC0415

        runner = uvloop.run
    except ImportError:
        runner = asyncio.run
    began = time.perf_counter()
    result = runner(run(spec))
    print(json.dumps({**result, "whole_seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
