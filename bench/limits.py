"""What a limit adds to a call, and how long a halt takes to be in force: `python -m bench.limits`.

The cost of a call is the processor time of deciding, charging and counting it beside that of the same call without a
limit. A halt is timed from the request of the operator to the first refusal, on both workers of a proxy and on both of
two replicas that share a Postgres.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.admin_api.client import RemoteHalts
from proxy.core.model import Call
from proxy.identity.token_file import OperatorTokens, read_token
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import PolicyFile
from proxy.store.limit_store_postgres import PostgresLimits
from proxy.store.limit_store_sqlite import SqliteLimits
from proxy.store.postgres import PostgresDatabase
from tests.daemon.lines_to import Line, reason_of
from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.postgres import DURABLE, Postgres

if TYPE_CHECKING:
    from proxy.core.limits import LimitStore

LIMITS: list[dict[str, Any]] = [
    {"id": "count", "tools": ["echo"], "count": 1_000_000, "within": "1h"},
    {"id": "sum", "tools": ["pay"], "sum": {"arg": "amount", "max": 1_000_000_000}, "within": "1h"},
]
ALLOW = "version: 1\ndefault: allow\n"
ROUNDS = 5


def policy(limits: list[dict[str, Any]]) -> CompiledPolicy:
    file = PolicyFile.model_validate({"version": 1, "limits": limits})
    return CompiledPolicy([], default="allow", limits=file.limits)


async def charge(store: LimitStore, rules: CompiledPolicy, call: Call, number: int) -> None:
    decision = rules.decide(call)
    if decision.charges and await store.reserve(f"{call.tool}-{time.monotonic_ns()}-{number}", decision.charges):
        raise SystemExit("the limit of the benchmark is used up")


async def cost(store: LimitStore, rules: CompiledPolicy, call: Call, calls: int) -> tuple[float, float]:
    """Return the processor and the wall time of one call, in µs: the least of some rounds, since machines are noisy."""
    found = []
    for _ in range(ROUNDS):
        used, began = time.process_time(), time.perf_counter()
        for number in range(calls):
            await charge(store, rules, call, number)
        found.append((time.process_time() - used, time.perf_counter() - began))
        await store.maintain()
    return min(each[0] for each in found) / calls * 1e6, min(each[1] for each in found) / calls * 1e6


async def costs(name: str, store: LimitStore, calls: int) -> None:
    echo = Call("tools/call", "server", "agent", "echo", {"text": "x"})
    pay = Call("tools/call", "server", "agent", "pay", {"amount": 12.5})
    other = Call("tools/call", "server", "agent", "other", {})
    none, all_ = policy([]), policy(LIMITS)
    for label, rules, call in (
        ("no limit in the policy", none, echo),
        ("no limit that applies", all_, other),
        ("count", all_, echo),
        ("sum", all_, pay),
    ):
        cpu, wall = await cost(store, rules, call, calls)
        print(f"{name:9} {label:24} {cpu:8.1f} µs of processor time  {wall:8.1f} µs in all")


def halted(line: Line) -> bool:
    return reason_of(line.call(1, "echo")) == "halted"


def time_halts(name: str, server: ServerHandle, proxies: list[Interlock], workers: int, rounds: int) -> None:
    lines = [Line(proxy, number, f"{server.url}/mcp") for proxy in proxies for number in range(1, workers + 1)]
    first = proxies[0]
    button = RemoteHalts(Path(first.run["operator_socket"]), read_token(OperatorTokens(first.state_dir).token_file))
    delays: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        made = asyncio.run(button.halt("bench", agent="agent", server=None, tool=None, cut=False))
        for line in lines:
            while not halted(line):
                pass
        delays.append(time.perf_counter() - began)
        asyncio.run(button.resume("bench", [made["halt_id"]]))
        for line in lines:
            while halted(line):
                pass
    for line in lines:
        line.close()
    shown = f"median {statistics.median(delays) * 1000:.0f} ms, longest {max(delays) * 1000:.0f} ms"
    print(f"halt, {name}: {shown} from the request to the refusal of the last ({rounds} halts)")


async def measure_stores(folder: Path, url: str, calls: int) -> None:
    sqlite, database = SqliteLimits(folder / "limits.db"), PostgresDatabase(url)
    await costs("SQLite", sqlite, calls)
    await costs("Postgres", PostgresLimits(database, database), max(100, calls // 20))
    await sqlite.close()
    await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--halts", type=int, default=10)
    given = parser.parse_args()
    postgres = Postgres(DURABLE)
    try:
        with tempfile.TemporaryDirectory() as name, postgres.lend() as url:
            folder = Path(name)
            asyncio.run(measure_stores(folder, url, given.calls))
            with start_python_server("quick", folder / "quick") as server:
                with start_interlock(folder / "two", policy=ALLOW, flags=["--workers", "2"]) as two:
                    time_halts("two workers on files", server, [two], 2, given.halts)
                flags = ["--database-url", url]
                with (
                    start_interlock(folder / "first", policy=ALLOW, flags=flags) as first,
                    start_interlock(folder / "second", policy=ALLOW, flags=flags) as second,
                ):
                    time_halts("two replicas on Postgres", server, [first, second], 1, given.halts)
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
