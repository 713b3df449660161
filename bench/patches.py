"""What each replacement in addons/mitm/fast gains: `python -m bench.patches`.

Every variant is a worker of its own that lacks one replacement; all are up at once. One client holds connections to
all of them and makes short bursts of calls in turn, so that what else the machine does falls on all alike. The calls
pass mitmproxy's layers, as what does not fit the fast lane does; with `--lane`, they take the lane. All are
started anew several times: two processes of the same code differ by some percent, by how their memory happens to be
laid out. Printed is how much more processor time a call takes without each replacement.

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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mitmproxy.proxy.layers.http import HttpClient
from mitmproxy.proxy.layers.tls import ClientTLSLayer, ServerTLSLayer

from addons.mitm.addon_manager import FailClosedAddonManager
from addons.mitm.certificates import Certificates
from addons.mitm.connection_handler import GuardedConnectionHandler
from addons.mitm.fast import connection_handler, header_index, message_types
from addons.mitm.fast.http_layer import FastHttpLayer, FastHttpStream
from addons.mitm.fast.replacements import FAST
from addons.mitm.http_connections import GuardedHttp1Client
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
CONNECTIONS = 32
# What is compared with something other than all of them: it works only together with what that lacks, too.
COMPARED_WITH = {"hook_table": "connection_handler"}
KEPT = (
    "connection_handler",
    "hook_table",
    "sync_hooks",
    "http_layer",
    "tunnel",
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
    if name == "tunnel":
        del FastHttpStream.handle_connect_finish
    handler = {"connection_handler": GuardedConnectionHandler}
    changes: dict[str, dict[str, Any]] = {
        **{plain: {} for plain in (ALL, "tunnel")},
        "connection_handler": handler,
        "hook_table": {**handler, "addon_manager": FailClosedAddonManager},
        "sync_hooks": {"http_layer": PausingLayer},
        "http_layer": {
            "http_layer": GuardedHttpLayer,
            "http_client": HttpClient,
            "http1_client": GuardedHttp1Client,
        },
        "tls_records": {"client_tls": ClientTLSLayer, "server_tls": ServerTLSLayer},
        **{
            module.__name__.rpartition(".")[2]: {"functions": tuple({*FAST.functions} - {module.install})}
            for module in (header_index, message_types)
        },
        "tls_contexts": {"certificates": Certificates},
        "tls_sessions": {"addons": ()},
    }
    return Replacements() if name == "everything" else dataclasses.replace(FAST, **changes[name])


class PausingStream(GuardedHttpStream):
    """Stops at every hook."""


class PausingLayer(FastHttpLayer):
    """Its streams stop at every hook."""

    stream = PausingStream  # type: ignore[assignment]


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

    async def burst(self, calls: int) -> None:
        """Make so many calls."""
        request = self.spec.request()
        if self.spec.fresh:
            for _ in range(calls):
                await once(self.spec, self.spec.context, Tally(self.spec), request)
        else:
            await asyncio.gather(*(_calls(one, request, calls // CONNECTIONS) for one in self.open))


async def _calls(one: Answers, request: bytes, count: int) -> None:
    for _ in range(count):
        waiting = one.expect()
        one.transport.write(request)
        if problem := await waiting:
            raise RuntimeError(problem)


async def compare(variants: dict[str, Variant], calls: int, seconds: float) -> dict[str, float]:
    """Take turns for so long; return what each takes, the whole taking 1.

    All of a process's time counts, also what it spends after its burst: it writes its log then.
    """
    for variant in variants.values():
        await variant.start(10 * calls)
    end, before = time.monotonic() + seconds, {name: each.cpu_seconds() for name, each in variants.items()}
    while time.monotonic() < end:
        for variant in variants.values():
            await variant.burst(calls)
    await asyncio.sleep(1.0)
    used = {name: each.cpu_seconds() - before[name] for name, each in variants.items()}
    return {name: used[name] / used[ALL] for name in variants if name != ALL}


def start_and_compare(
    names: Iterable[str], calls: int, seconds: float, *, fresh: bool, lane: bool = False
) -> dict[str, float]:
    """Start the workers, and compare them."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = stack.enter_context(servers(folder / "servers", Installed()))
        world = World(upstream, folder, Installed())
        variants = {}
        for name in names:
            os.environ[VARIANT] = name
            flags = () if lane else ("--no-fast-lane",)
            interlock = Interlock(f"variant-{name}", module="bench.patches", flags=flags)
            running = stack.enter_context(interlock(world, "tls"))
            spec = Spec(running.port, AUTHORITY.format(upstream.tls), "/small.json", tunnel=True, tls=True)
            variants[name] = Variant(running, dataclasses.replace(spec, fresh=fresh))
        return asyncio.run(compare(variants, calls, seconds))


def main() -> None:
    """Compare as often as asked, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="replacements to measure; all of them unless named")
    parser.add_argument("--fresh", action="store_true", help="a connection for each call")
    parser.add_argument("--lane", action="store_true", help="calls that take the fast lane, where they may")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30.0, help="after each start")
    parser.add_argument("--calls", type=int, default=0, help="in one burst")
    asked = parser.parse_args()
    names = dict.fromkeys(asked.names or (FRESH if asked.fresh else KEPT))
    names |= dict.fromkeys([ALL, *(COMPARED_WITH[name] for name in names if name in COMPARED_WITH)])
    calls = asked.calls or (4 if asked.fresh else 2 * CONNECTIONS)
    found = [
        start_and_compare(names, calls, asked.seconds, fresh=asked.fresh, lane=asked.lane) for _ in range(asked.starts)
    ]
    for name in found[0]:
        taken = [ratios[name] / ratios.get(COMPARED_WITH.get(name, ""), 1.0) - 1 for ratios in found]
        spread = statistics.stdev(taken) / len(taken) ** 0.5 if len(taken) > 1 else 0.0
        print(f"without {name:20} {statistics.mean(taken):+7.1%} ± {spread:.1%}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["up"]:
        serve()
    else:
        main()
