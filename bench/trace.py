"""What watching a server costs: a call's latency and calls a second, by itself, behind `run --trace off`, and traced.

For a server of the Python SDK and one of the TypeScript SDK. Also how many lines of strace's are read a second,
and how much of what overlapping calls do is told right, in the recordings of the tests.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import figures
from bench.figures import Figure
from proxy.trace.attribute import Attributor
from proxy.trace.normalise import Normaliser
from proxy.trace.strace import TraceReader
from tests.support.node_tools import server_command
from tests.support.stdio_harness import run_command
from tests.trace.recordings import AT_ONCE, MODES, load, play, truths

FILES = 1000
WAYS = ("plain", "off", "require", "rules")
POLICY = "version: 1\ndefault: allow\nrules: []\n"
# Rules that withhold: every answer waits for its trace.
RULES = """\
version: 1
default: allow
rules:
  - {id: keys, on: observed, action: withhold, acts: [fs.read], when: {arg: path, path_under: ["~/.ssh", "~/.aws"]}}
  - {id: out, on: observed, action: withhold, acts: [connect], when: {not: {arg: host, ip_class: [loopback]}}}
"""
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class Client:
    """A client that speaks to a command over stdio."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._numbers = itertools.count()
        self.ask("initialize", INITIALIZE)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, *messages: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout
        while True:
            line = self._process.stdout.readline()
            assert line, "the server has ended"
            message = json.loads(line)
            if "id" in message and "method" not in message:
                assert "result" in message, message
                return message

    def ask(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params})
        self._receive()

    def call(self, tool: str, **arguments: Any) -> None:
        self.ask("tools/call", {"name": tool, "arguments": arguments})

    def pipeline(self, count: int) -> None:
        """Make calls without waiting for the answers, a few at a time."""
        for _ in range(count // 10):
            params = {"name": "echo", "arguments": {"text": "hello"}}
            self._send(
                *(
                    {"jsonrpc": "2.0", "id": next(self._numbers), "method": "tools/call", "params": params}
                    for _ in range(10)
                )
            )
            for _ in range(10):
                self._receive()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(20)


def timed(work: Callable[[], None], count: int) -> list[float]:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    return times


def measure_ways(command: list[str], folder: Path, rounds: int, calls: int) -> dict[str, dict[str, float]]:
    """Measure each way in turns, so that a busy minute of the machine is everybody's."""
    files = folder / "files"
    figures: dict[str, dict[str, list[float]]] = {way: {"echo": [], "many": [], "rate": []} for way in WAYS}
    clients = {way: Client(command if way == "plain" else _behind_run(way, folder, command)) for way in WAYS}
    for client in clients.values():
        for _ in range(20):
            client.call("echo", text="warm")
        client.call("read_many", folder=str(files), count=FILES)
    for _ in range(rounds):
        for way, client in clients.items():
            figures[way]["echo"] += timed(lambda client=client: client.call("echo", text="hello"), calls)
            figures[way]["many"] += timed(
                lambda client=client: client.call("read_many", folder=str(files), count=FILES), max(3, calls // 20)
            )
            started = time.perf_counter()
            client.pipeline(calls)
            figures[way]["rate"].append(calls / (time.perf_counter() - started))
    for client in clients.values():
        client.close()
    return {way: summary(each) for way, each in figures.items()}


def _behind_run(way: str, folder: Path, command: list[str]) -> list[str]:
    """Return the command of a way: traced or not, and with rules on what is observed."""
    policy = folder / f"{way}.yaml"
    policy.write_text(RULES if way == "rules" else POLICY)
    return run_command(folder / way, policy, command, "--trace", "require" if way == "rules" else way)


def summary(each: dict[str, list[float]]) -> dict[str, float]:
    echo, many = sorted(each["echo"]), each["many"]
    return {
        "p50": statistics.median(echo),
        "p99": echo[int(len(echo) * 0.99)],
        "many": statistics.median(many),
        "rate": statistics.median(each["rate"]),
    }


def show(name: str, figures_of: dict[str, dict[str, float]]) -> Iterator[Figure]:
    for way, each in figures_of.items():
        yield Figure(f"{name}, {way}: echo p50", each["p50"], "ms")
        yield Figure(f"{name}, {way}: echo p99", each["p99"], "ms")
        yield Figure(f"{name}, {way}: {FILES} files read in a call", each["many"], "ms")
        yield Figure(f"{name}, {way}: echo calls, ten at a time", each["rate"], "a second")
    off, traced = figures_of["off"], figures_of["require"]
    yield Figure(f"{name}, traced beside untraced: echo", traced["p50"] / off["p50"], "x")
    yield Figure(f"{name}, traced beside untraced: files", traced["many"] / off["many"], "x")
    ruled = figures_of["rules"]
    yield Figure(f"{name}, with rules on what is observed beside traced: echo", ruled["p50"] / traced["p50"], "x")
    yield Figure(f"{name}, with rules on what is observed beside traced: files", ruled["many"] / traced["many"], "x")


def measure_servers(rounds: int, calls: int) -> Iterator[Figure]:
    for name, command in (
        ("Python SDK", [sys.executable, "-m", "tests.servers.files"]),
        ("TypeScript SDK", server_command("files")),
    ):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            (folder / "files").mkdir()
            for number in range(FILES):
                (folder / "files" / f"{number:04}").write_text("content\n")
            yield from show(name, measure_ways(command, folder, rounds, calls))


def lines_per_second() -> Iterator[Figure]:
    for name in ("sync-8", "spawn-8"):
        lines = load(name)["lines"]
        lines *= 100_000 // len(lines)
        read = max(_rate(lines, sense=False) for _ in range(3))
        sense = max(_rate(lines, sense=True) for _ in range(3))
        yield Figure(f"{name}: lines of strace's read", read, "a CPU second")
        yield Figure(f"{name}: with what they mean and whose they are", sense, "a CPU second")


def _rate(lines: list[str], *, sense: bool) -> float:
    reader, normaliser, attributor = TraceReader(), Normaliser(), Attributor(2)
    attributor.reading_began()
    started = time.process_time()
    for line in lines:
        event = reader.take(line)
        if sense:
            attributor.take(event, normaliser.take(event))
    return len(lines) / (time.process_time() - started)


def attribution() -> Iterator[Figure]:
    for mode in MODES:
        for paths in ("-paths", ""):
            told = list(truths(play(load(f"{mode}-{AT_ONCE}{paths}"))))
            right = sum(each.attribution.calls[0] == call for call, each in told)
            among = sum(call in each.attribution.calls for call, each in told)
            named = "named by arguments" if paths else "not named"
            name = f"{AT_ONCE} calls at once, {mode}, {named}: of {len(told)} deeds"
            yield Figure(f"{name}, the right call first", right / len(told) * 100, "%")
            yield Figure(f"{name}, among the candidates", among / len(told) * 100, "%")


def measure(quick: bool) -> Iterator[Figure]:  # noqa: FBT001
    yield from lines_per_second()
    yield from attribution()
    yield from measure_servers(1 if quick else 5, 60 if quick else 200)


if __name__ == "__main__":
    figures.main(measure, __doc__)
