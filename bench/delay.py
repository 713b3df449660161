"""How long small calls wait while large ones pass: `python -m bench.delay`.

A real proxy with the default policy, a server and two clients, each a process of its own. One client makes
small calls one after the other and notes how long each takes; meanwhile the other does nothing, or passes
5 MB results or arguments, through the proxy or past it. The difference between "past" and "through" is
what the proxy's own work on the large calls costs the small ones; the rest is the machine's.

On a machine that others use, the clock on the wall tells of them. So each call is also measured by the
processor time that the proxy used, in all its threads, while the call was under way: on idle cores that is
what it waits, or less, where threads run side by side.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from bench import figures
from bench.figures import Figure
from bench.processes import ROOT

SIZE = 5_000_000
SECONDS = 6.0
PAUSE = 0.002
GAP = 0.1
START_LIMIT = 30.0
SPAWN = multiprocessing.get_context("spawn")


def text_of(size: int) -> str:
    """Return lines of words and numbers, with nothing to find."""
    source = random.Random(1)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(1, 11))) for _ in range(5000)]
    line = " ".join(source.choices(words, k=2000)) + "\n"
    return (line * (size // len(line) + 1))[:size]


def call(tool: str, arguments: dict[str, Any]) -> bytes:
    """Spell a call."""
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


class Server(BaseHTTPRequestHandler):
    """Answers calls: one of tool `large` with much text."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    large = b""

    def do_POST(self) -> None:
        """Answer a call."""
        body = self.rfile.read(int(self.headers["content-length"]))
        text = self.large if b'"large"' in body[:200] else b'"fine"'
        answer = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":%s}]}}' % text
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve(ports: Any) -> None:
    """Be the server, until ended."""
    Server.large = json.dumps(text_of(SIZE)).encode()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    ports.put(server.server_address[1])
    server.serve_forever()


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """Make one call and give the answer."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request("POST", "/mcp", body, headers)
    answer = connection.getresponse().read()
    if b"mcp-interlock/denial" in answer:
        raise RuntimeError(f"the call was refused: {answer[:400]!r}")
    return answer


def load(port: int, kind: str, passed: Any) -> None:
    """Make large calls, until ended; count them."""
    body = call("large", {}) if kind == "results" else call("small", {"text": text_of(SIZE)})
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while True:
        post(connection, body)
        with passed.get_lock():
            passed.value += 1
        time.sleep(GAP)


class Proxy(NamedTuple):
    """A running proxy."""

    process: subprocess.Popen[bytes]
    port: int

    def used(self) -> float:
        """Return the milliseconds of processor time that its threads have used."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


class Times(NamedTuple):
    """How long small calls took, in milliseconds of the clock on the wall and of the proxy's processor time."""

    wall: list[float]
    used: list[float]


def small_calls(proxy: Proxy, seconds: float) -> Times:
    """Make small calls for a while."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
    body, times = call("small", {"text": "hello"}), Times([], [])
    for _ in range(50):
        post(connection, body)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start, used = time.perf_counter(), proxy.used()
        post(connection, body)
        times.wall.append((time.perf_counter() - start) * 1000)
        times.used.append(proxy.used() - used)
        time.sleep(PAUSE)
    return times


def beside(proxy: Proxy, kind: str, port: int, seconds: float) -> tuple[Times, int]:
    """Measure while large calls go to `port`; return the times, and how many passed."""
    passed = SPAWN.Value("i", 0)
    worker = SPAWN.Process(target=load, args=(port, kind, passed), daemon=True)
    worker.start()
    try:
        deadline = time.monotonic() + START_LIMIT
        while not passed.value:
            if time.monotonic() > deadline or not worker.is_alive():
                raise RuntimeError("no large call passed")
            time.sleep(0.01)
        before = passed.value
        return small_calls(proxy, seconds), passed.value - before
    finally:
        worker.terminate()
        worker.join()


def start_proxy(upstream: int, state: Path) -> Proxy:
    """Run the proxy before the server."""
    argv = [sys.executable, "-m", "proxy.cli", "up", "--listen", "127.0.0.1:0", "--state-dir", str(state)]
    argv += ["--mode", f"reverse:http://127.0.0.1:{upstream}"]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        if (state / "run.json").exists():
            return Proxy(process, int(json.loads((state / "run.json").read_bytes())["listen"].rpartition(":")[2]))
        time.sleep(0.05)
    process.kill()
    raise RuntimeError("the proxy did not start")


def show(name: str, times: Times, passed: int = 0) -> Iterator[Figure]:
    """Return the figures of one row."""
    many = f", {passed} of them" if passed else ""
    for what, taken in (("wall", sorted(times.wall)), ("CPU", sorted(times.used))):
        yield Figure(f"small calls {name}{many}: p50, {what}", taken[len(taken) // 2], "ms")
        yield Figure(f"small calls {name}{many}: p99, {what}", taken[int(len(taken) * 0.99)], "ms")


def measure(quick: bool) -> Iterator[Figure]:  # noqa: FBT001
    """Return the figures."""
    seconds = SECONDS / 3 if quick else SECONDS
    ports = SPAWN.Queue()
    server = SPAWN.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    upstream = ports.get(timeout=START_LIMIT)
    with tempfile.TemporaryDirectory() as folder:
        proxy = start_proxy(upstream, Path(folder))
        try:
            yield from show("alone", small_calls(proxy, seconds))
            for kind in ("results", "arguments"):
                yield from show(f"beside 5 MB {kind} past it", *beside(proxy, kind, upstream, seconds))
                yield from show(f"beside 5 MB {kind} through it", *beside(proxy, kind, proxy.port, seconds))
        finally:
            proxy.process.send_signal(signal.SIGTERM)
            proxy.process.wait(START_LIMIT)
            server.terminate()


if __name__ == "__main__":
    figures.main(measure, __doc__)
