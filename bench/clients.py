"""Making load and measuring it: our own client, or wrk where it can do the work, and the proxy's processor time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import select
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import proc
from bench.histogram import Histogram
from bench.install import find_program
from bench.load import Spec
from bench.payloads import call
from bench.processes import ROOT, Started, StartError, started
from bench.servers import Servers, tool_python

READY_LIMIT = 60.0
LEAST_SERVED = 0.98
WRK_CONNECTIONS = 64
WRK_HEAD = 0.4
"""Seconds after which wrk's connections are open."""


@dataclass(frozen=True)
class Sample:
    """What one turn of one contender gave."""

    calls: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None = None
    """The proxy's processor time for a call, in microseconds."""
    busiest_us: float | None = None
    """The same of its busiest process alone."""
    megabytes: float = 0.0
    client: str = "load"

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.calls / self.seconds


class LoadError(RuntimeError):
    """A turn gave no figure that can be believed; the text says why."""


def processes_for(connections: int) -> int:
    """Return how many client processes to use: half the cores, never more than four."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2, connections))


def read_line(one: Started, limit: float) -> str:
    """Read a line that a process writes.

    Raises StartError where none comes.
    """
    assert one.process.stdout
    line, deadline = b"", time.monotonic() + limit
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([one.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(one.process.stdout.fileno(), 1 << 16) if ready else b""
        if not chunk:
            raise StartError(f"{one.name} said nothing more: {one.said()}")
        line += chunk
    return line.decode()


@dataclass(frozen=True)
class Meter:
    """The processor time of one contender, where it is a process."""

    pid: int | None

    def look(self) -> dict[int, float]:
        """Return what it has used by now."""
        return proc.cpu_seconds(self.pid) if self.pid else {}

    def per_call(self, before: dict[int, float], calls: int) -> tuple[float | None, float | None]:
        """Return the microseconds a call since then, of all its processes and of the busiest."""
        used = proc.spent(before, self.look())
        if not self.pid or not calls:
            return None, None
        return sum(used.values()) / calls * 1e6, max(used.values(), default=0.0) / calls * 1e6


def run_load(spec: Spec, pid: int | None, servers: Servers | None = None, processes: int = 1) -> Sample:
    """Let our own client make load; return what came of it.

    Raises LoadError where calls failed, or never came to the server.
    """
    meter = Meter(pid)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        each = dataclasses.replace(
            spec, connections=max(1, spec.connections // processes), calls=spec.calls // processes
        )
        argv: list[str | Path] = [tool_python(), "-m", "bench.load", json.dumps(dataclasses.asdict(each))]
        clients = [
            stack.enter_context(started(f"client-{number}", argv, folder, cwd=ROOT, pipes=True))
            for number in range(processes)
        ]
        for client in clients:
            read_line(client, READY_LIMIT)
        served = servers.served() if servers else 0
        before, began = meter.look(), time.perf_counter()
        for client in clients:
            assert client.process.stdin
            client.process.stdin.write(b"go\n")
            client.process.stdin.flush()
        said = [json.loads(read_line(client, spec.seconds + READY_LIMIT)) for client in clients]
        took = time.perf_counter() - began
        finished = sum(one["finished"] for one in said)
        whole, busiest = meter.per_call(before, finished)
        if servers:
            _check_served(servers.served() - served - 1, finished)
    times = Histogram()
    for one in said:
        times.merge({int(bucket): count for bucket, count in one["times"].items()})
    _check_failures([one["failures"] for one in said], finished)
    bounded = bool(spec.calls)
    if not bounded and not len(times):
        raise LoadError(f"no call was answered within the {spec.seconds:g} s of a turn")
    return Sample(
        calls=finished if bounded else len(times),
        seconds=took if bounded else spec.seconds,
        p50_ms=times.quantile(0.5) * 1000,
        p99_ms=times.quantile(0.99) * 1000,
        cpu_us=whole,
        busiest_us=busiest,
        megabytes=sum(one["received"] for one in said) / 1e6,
    )


def _check_failures(failures: list[dict[str, int]], finished: int) -> None:
    whole: dict[str, int] = {}
    for one in failures:
        for text, count in one.items():
            whole[text] = whole.get(text, 0) + count
    if whole or not finished:
        raise LoadError(f"{sum(whole.values())} of {finished} calls failed: {whole}")


def _check_served(served: int, finished: int) -> None:
    if served < finished * LEAST_SERVED - 2:  # nginx counts being asked, too
        raise LoadError(f"{finished} calls were answered, and {served} came to the server")


WRK_SCRIPT = """\
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept"] = "application/json, text/event-stream"
wrk.headers["MCP-Protocol-Version"] = "2025-06-18"
wrk.headers["Host"] = "{authority}"
wrk.body = [==[{body}]==]
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\nJSON {{"calls":%d,"seconds":%f,"p50":%f,"p99":%f,"errors":%d}}\\n', summary.requests,
    summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""
WRK_RESULT = re.compile(r"^JSON (\{.*\})$", re.MULTILINE)


def can_wrk(spec: Spec) -> bool:
    """Return whether wrk is there and can do this: plain HTTP/1.1 without a tunnel, on connections that stay.

    Many connections are not for it: it counts the wait for each to open into the first calls, and so into the tail.
    """
    beyond = spec.tls or spec.fresh or spec.download or spec.calls or spec.connections > WRK_CONNECTIONS
    return find_program("wrk") is not None and not beyond


def run_wrk(spec: Spec, pid: int | None, servers: Servers) -> Sample:
    """Let wrk make load; return what came of it.

    wrk does not say when it is connected, so the processor time is that of the middle of its turn, over the requests
    that the server saw meanwhile. Raises LoadError as `run_load` does.
    """
    check_answer(spec)
    meter, program = Meter(pid), find_program("wrk")
    assert program
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = folder / "call.lua"
        script.write_text(WRK_SCRIPT.format(authority=spec.authority, body=call().decode()))
        url = f"http://127.0.0.1:{spec.port}{spec.path}"
        threads = processes_for(spec.connections)
        seconds = max(1, round(spec.seconds))
        argv = [
            program,
            "-t",
            threads,
            "-c",
            spec.connections,
            "-d",
            f"{seconds}s",
            "--timeout",
            "20s",
            "-s",
            script,
            url,
        ]
        start = servers.served()
        wrk = stack.enter_context(started("wrk", [str(word) for word in argv], folder))
        time.sleep(WRK_HEAD)
        first, before = servers.served(), meter.look()
        time.sleep(max(0.2, seconds - 2 * WRK_HEAD))
        whole, busiest = meter.per_call(before, 1)
        during = servers.served() - first - 1
        wrk.process.wait(seconds + READY_LIMIT)
        found = WRK_RESULT.search(wrk.said())
        if not found:
            raise LoadError(f"wrk gave no result: {wrk.said()}")
        said = json.loads(found[1])
    _check_failures([{"errors": said["errors"]} if said["errors"] else {}], said["calls"])
    _check_served(servers.served() - start, said["calls"])
    return Sample(
        calls=said["calls"],
        seconds=said["seconds"],
        p50_ms=said["p50"] / 1000,
        p99_ms=said["p99"] / 1000,
        cpu_us=None if whole is None or during <= 0 else whole / during,
        busiest_us=None if busiest is None or during <= 0 else busiest / during,
        client="wrk",
    )


def check_answer(spec: Spec) -> None:
    """See that a call gets the result.

    Raises LoadError where it gets something else.
    """
    one = dataclasses.replace(spec, connections=1, calls=1, seconds=20.0)
    run_load(one, None)


def measure(spec: Spec, pid: int | None, servers: Servers) -> Sample:
    """Make load with the fastest client that can."""
    if can_wrk(spec):
        return run_wrk(spec, pid, servers)
    return run_load(spec, pid, servers, processes_for(spec.connections))


@contextlib.contextmanager
def sampled(look: Callable[[], float], every: float = 0.1) -> Iterator[list[float]]:
    """Look at something again and again, beside what the block does; return what was seen."""
    seen, stop = [look()], threading.Event()

    def watch() -> None:
        while not stop.wait(every):
            seen.append(look())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
        seen.append(look())
