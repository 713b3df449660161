"""What each replacement in addons/mitm/fast gains: `python -m bench.patches`.

Every variant is a worker of its own that lacks one replacement; all are up at once. One client holds connections to
all of them and makes short bursts of calls in turn, each variant's between two of the one it is compared with, so
that what else the machine does falls on both alike. Printed is the ratio of the worker's processor time for a call.

`python -m bench.patches up …` is such a worker: `interlock up`, with the replacements that BENCH_VARIANT names.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from mitmproxy.proxy.layers.tls import ClientTLSLayer, ServerTLSLayer

from addons.mitm.addon_manager import FailClosedAddonManager
from addons.mitm.certificates import Certificates
from addons.mitm.connection_handler import GuardedConnectionHandler
from addons.mitm.fast import connection_handler, header_index, message_types
from addons.mitm.fast.http_layer import FastHttpLayer
from addons.mitm.fast.replacements import FAST
from addons.mitm.http_layer import GuardedHttpLayer
from addons.mitm.http_stream import GuardedHttpStream
from addons.mitm.patches import Replacements
from bench import proc
from bench.contenders import Interlock, Running, World
from bench.install import Installed
from bench.load import Answers, Spec, Tally, connect, once
from bench.servers import servers
from bench.workloads import AUTHORITY
from proxy import cli
from proxy.runtime import worker

VARIANT = "BENCH_VARIANT"
ALL = "all"
CONNECTIONS = 4
# What is compared with something other than all of them: it works only together with what that lacks, too.
COMPARED_WITH = {"hook_table": "connection_handler"}
KEPT = (
    "connection_handler",
    "hook_table",
    "sync_hooks",
    "http_layer",
    "tls_records",
    "header_index",
    "message_types",
    "everything",
)
"""Measured on connections that stay open."""
FRESH = ("tls_contexts", "tls_sessions", "connection_handler", "everything")
"""Measured with a connection for each call."""


def without(name: str) -> Replacements:
    """Return the replacements without one."""
    if name == "sync_hooks":
        connection_handler.complete_now = lambda _: False  # type: ignore[assignment]
    handler = {"connection_handler": GuardedConnectionHandler}
    changes: dict[str, dict[str, Any]] = {
        ALL: {},
        "connection_handler": handler,
        "hook_table": {**handler, "addon_manager": FailClosedAddonManager},
        "sync_hooks": {"http_layer": PausingLayer},
        "http_layer": {"http_layer": GuardedHttpLayer},
        "tls_records": {"client_tls": ClientTLSLayer, "server_tls": ServerTLSLayer},
        "header_index": {"functions": (message_types.install,)},
        "message_types": {"functions": (header_index.install,)},
        "tls_contexts": {"certificates": Certificates},
        "tls_sessions": {"addons": ()},
    }
    return Replacements() if name == "everything" else dataclasses.replace(FAST, **changes[name])


class PausingLayer(FastHttpLayer):
    """Its streams stop at every hook."""

    stream = GuardedHttpStream  # type: ignore[assignment]


def serve() -> None:
    """Run `interlock up` with one replacement less."""
    worker.FAST = without(os.environ[VARIANT])
    cli.main()


@dataclasses.dataclass
class Variant:
    """A worker, and the connections to it."""

    running: Running
    spec: Spec
    open: list[Answers] = dataclasses.field(default_factory=list)
    tasks: list[Path] = dataclasses.field(default_factory=list)

    def cpu_seconds(self) -> float:
        """Return the processor time of the worker's threads, to the nanosecond."""
        used = 0
        for task in self.tasks:
            with contextlib.suppress(OSError):
                used += int((task / "schedstat").read_text().split()[0])
        return used / 1e9

    async def start(self, calls: int) -> None:
        """Open the connections, and make calls until what is compiled and cached at first is."""
        assert self.running.pid
        while not self.spec.fresh and len(self.open) < CONNECTIONS:
            self.open.append(await connect(self.spec, self.spec.context))
        await self.burst(calls)
        self.tasks = [task for pid in proc.tree(self.running.pid) for task in proc.tasks(pid)]

    async def burst(self, calls: int) -> float:
        """Make so many calls; return the microseconds of processor time for each."""
        before, request = self.cpu_seconds(), self.spec.request()
        if self.spec.fresh:
            for _ in range(calls):
                await once(self.spec, self.spec.context, Tally(self.spec), request)
        else:
            await asyncio.gather(*(_calls(one, request, calls // CONNECTIONS) for one in self.open))
        return (self.cpu_seconds() - before) / calls * 1e6


async def _calls(one: Answers, request: bytes, count: int) -> None:
    for _ in range(count):
        waiting = one.expect()
        one.transport.write(request)
        if problem := await waiting:
            raise RuntimeError(problem)


async def compare(variants: dict[str, Variant], calls: int, seconds: float) -> None:
    """Take turns for so long, each between two of the whole, and print what came of it."""
    whole = variants.pop(ALL)
    ratios: dict[str, list[float]] = {name: [] for name in variants}
    times: list[float] = []
    for variant in (whole, *variants.values()):
        await variant.start(20 * calls)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times.append(await whole.burst(calls))
        for name, variant in variants.items():
            mine = await variant.burst(calls)
            times.append(await whole.burst(calls))
            ratios[name].append(2 * mine / (times[-2] + times[-1]))
    print(f"all: {statistics.median(times):.0f} µs a call; {len(next(iter(ratios.values())))} rounds of {calls} calls")
    for name, taken in ratios.items():
        low, middle, high = statistics.quantiles(taken, n=4)
        gain = middle / (statistics.median(ratios[COMPARED_WITH[name]]) if name in COMPARED_WITH else 1.0) - 1
        error = 1.25 * (high - low) / 1.35 / len(taken) ** 0.5  # of a median, where the errors are normal
        print(f"without {name:20} {gain:+7.1%} ± {error:.1%}   quartiles {low - 1:+.1%} to {high - 1:+.1%}", flush=True)


def main() -> None:
    """Start the workers, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="replacements to measure; all of them unless named")
    parser.add_argument("--fresh", action="store_true", help="a connection for each call")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--calls", type=int, default=0)
    asked = parser.parse_args()
    names = dict.fromkeys(asked.names or (FRESH if asked.fresh else KEPT))
    names |= dict.fromkeys([ALL, *(COMPARED_WITH[name] for name in names if name in COMPARED_WITH)])
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(servers(folder / "servers", Installed()))
        world = World(upstream, folder, Installed())
        variants = {}
        for name in names:
            os.environ[VARIANT] = name
            running = stack.enter_context(Interlock(f"variant-{name}", module="bench.patches")(world, "tls"))
            spec = Spec(running.port, AUTHORITY.format(upstream.tls), "/small.json", tunnel=True, tls=True)
            variants[name] = Variant(running, dataclasses.replace(spec, fresh=asked.fresh))
        asyncio.run(compare(variants, asked.calls or (4 if asked.fresh else 16), asked.seconds))


if __name__ == "__main__":
    if sys.argv[1:2] == ["up"]:
        serve()
    else:
        main()
