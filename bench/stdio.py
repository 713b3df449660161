"""What a call over stdio waits: at the server itself, behind `interlock run`, traced and not, and mcp-firewall."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import policies
from bench.clients import LoadError, Meter, read_line
from bench.contenders import PACKAGES, World
from bench.gateways import INITIALIZE
from bench.payloads import ARGUMENTS, MARK, TOOL
from bench.processes import Started, StartError, started
from bench.workloads import turns

LIMIT = 60.0
WARM = 20
SERVER = [sys.executable, "-m", "bench.stdio_server"]
# Lets the call pass, with its scans on as they come.
FIREWALL = """\
version: 1
defaultAction: allow
globalRateLimit: {maxCalls: 100000000, windowSeconds: 60}
rules:
  - {name: no-shell, tool: "shell|delete_file|transfer_funds", action: deny}
audit: {enabled: true, path: "%s"}
"""


class Pipe:
    """A client on a process's stdin and stdout."""

    def __init__(self, process: Started) -> None:
        self._process = process
        self._numbers = itertools.count(1)
        self._ask("initialize", INITIALIZE)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, object]) -> None:
        assert self._process.process.stdin
        self._process.process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.process.stdin.flush()

    def _ask(self, method: str, params: object) -> str:
        number = next(self._numbers)
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while True:
            line = read_line(self._process, LIMIT)
            if f'"id":{number}' in line.replace(" ", ""):
                return line

    def call(self) -> float:
        """Make a call; return the milliseconds it took."""
        began = time.perf_counter()
        said = self._ask("tools/call", {"name": TOOL, "arguments": ARGUMENTS})
        took = (time.perf_counter() - began) * 1000
        if MARK.decode() not in said:
            raise LoadError(f"not the result: {said[:300]}")
        return took


@contextlib.contextmanager
def plain(world: World) -> Iterator[Started]:
    """The server by itself."""
    with started("stdio-plain", SERVER, world.folder, pipes=True) as server:
        yield server


# Every answer waits for its trace.
OBSERVED = """\
version: 1
rules:
  - {id: keys, on: observed, action: withhold, acts: [fs.read], when: {arg: path, path_under: ["~/.ssh", "~/.aws"]}}
"""


def run_interlock(trace: str, observed: str = "") -> Callable[[World], contextlib.AbstractContextManager[Started]]:
    """Return `interlock run`, everything on, with tracing as said."""

    @contextlib.contextmanager
    def start(world: World) -> Iterator[Started]:
        if trace != "off" and shutil.which("strace") is None:
            raise StartError("strace is not installed")
        name = f"stdio-{trace}{'-ruled' if observed else ''}"
        folder = world.folder / name
        policy = policies.write(folder / "policies" / "policy.yaml", 100, redact=True).parent
        if observed:
            (policy / "observed.yaml").write_text(observed)
        argv = [sys.executable, "-m", "proxy.cli", "run", "--state-dir", str(folder / "state")]
        argv += ["--policy", str(policy), "--trace", trace, "--", *SERVER]
        with started(name, argv, folder, pipes=True) as server:
            yield server

    return start


@contextlib.contextmanager
def firewall(world: World) -> Iterator[Started]:
    """The mcp-firewall package."""
    if reason := world.installed.reason("mcp-firewall"):
        raise StartError(reason)
    folder: Path = world.folder / "stdio-firewall"
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "mcp-firewall.yaml"
    config.write_text(FIREWALL % (folder / "audit.jsonl"))
    argv: list[str | Path] = [PACKAGES["mcp-firewall"].path(), "wrap", "--config", str(config), "--", *SERVER]
    with started("stdio-firewall", argv, folder, pipes=True) as server:
        yield server


WAYS = {
    "plain": plain,
    "run": run_interlock("off"),
    "traced": run_interlock("require"),
    "traced, rules on what is observed": run_interlock("require", OBSERVED),
    "mcp-firewall": firewall,
}


def run(world: World, say: Callable[[str], None], calls: int, rounds: int) -> dict[str, dict[str, float | None]]:
    """Measure each way in turns. Processor time is that of everything behind the pipe, the server included."""
    with contextlib.ExitStack() as stack:
        pipes: dict[str, tuple[Pipe, Meter]] = {}
        for name, start in WAYS.items():
            say(f"stdio: {name} starts")
            try:
                process = stack.enter_context(start(world))
                pipe = Pipe(process)
                for _ in range(WARM):
                    pipe.call()
                pipes[name] = pipe, Meter(process.pid)
            except (StartError, LoadError, OSError) as error:
                world.leave_out(f"stdio: {name}", str(error))
        times: dict[str, list[float]] = {name: [] for name in pipes}
        cpu: dict[str, list[float]] = {name: [] for name in pipes}
        for name in turns(list(pipes), rounds):
            say(f"stdio: {name}")
            pipe, meter = pipes[name]
            before = meter.look()
            try:
                times[name] += [pipe.call() for _ in range(calls)]
            except (StartError, LoadError, OSError) as error:
                world.leave_out(f"stdio: {name}", str(error))
                continue
            cpu[name] += [meter.per_call(before, calls)[0] or 0.0]
    return {
        name: {
            "p50_ms": statistics.median(taken),
            "p99_ms": statistics.quantiles(taken, n=100)[98],
            "cpu_us": statistics.median(cpu[name]),
        }
        for name, taken in times.items()
        if taken
    }
