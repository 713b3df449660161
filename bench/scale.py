"""How the trail scales: questions at ten times more events each step, what each sink takes and how fast, verification.

    python -m bench.scale [store] [sinks] [verify] [--events 5000000] [--sink-events 50000]

The Postgres is a real one, with its files in a temporary folder; JetStream is a real server; ClickHouse is chdb's
engine behind its HTTP interface, so its figures are of the engine. Results go to bench/results/scale.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg

from proxy.audit.event_store import Events
from proxy.audit.open_events import open_events
from proxy.audit.range_check import Stretch
from proxy.audit.stretch_pool import open_pool
from proxy.core.event import Filter, LogEntry, link, start
from proxy.sinks.clickhouse_sink import open_sink as open_clickhouse
from proxy.sinks.nats_sink import open_sink as open_nats
from proxy.sinks.parquet_sink import open_sink as open_parquet
from proxy.sinks.role import Sink
from proxy.sinks.settings import ClickHouseSettings, NatsSettings, ParquetSettings
from proxy.system.package_data import sql_dir
from tests.support.clickhouse_server import ClickHouseServer
from tests.support.nats_servers import NatsServers
from tests.support.postgres import Postgres

RESULTS = Path(__file__).parent / "results" / "scale.json"
CONFIGURATION = """
fsync = off
synchronous_commit = off
max_connections = 50
shared_buffers = 1GB
max_wal_size = 8GB
maintenance_work_mem = 512MB
work_mem = 32MB
"""
DAYS = 8
STEP = 250_000
ROUNDS = 5
WRITER = "0190cccc-0000-7000-8000-000000000003"


def questions() -> dict[str, str]:
    text = (sql_dir() / "audit_queries.sql").read_text()
    return dict(re.findall(r"^-- name: (\w+)\n(.*?);$", text, re.MULTILINE | re.DOTALL))


async def measure_store(url: str, events: int) -> dict[str, Any]:
    """Load up to so many events, and ask every question on the way at a hundredth, a tenth and all of them."""
    found: dict[str, Any] = {}
    for size in (events // 100, events // 10, events):
        began = time.monotonic()
        await load(url, size)
        loaded = time.monotonic() - began
        found[str(size)] = {"load_seconds": round(loaded, 1), "ms": await ask(url)}
        print(f"{size} events ({loaded:.0f} s to load)")
        for name, ms in sorted(found[str(size)]["ms"].items(), key=lambda one: -one[1]):
            print(f"  {ms:9.1f} ms  {name}")
    connection = await asyncpg.connect(url)
    heap = "sum(pg_table_size(relid)), sum(pg_indexes_size(relid))"
    table, indexes = await connection.fetchrow(f"SELECT {heap} FROM pg_partition_tree('events') WHERE isleaf")
    await connection.close()
    found["bytes_an_event"] = {"table": round(int(table) / events), "indexes": round(int(indexes) / events)}
    print(found["bytes_an_event"])
    return found


async def load(url: str, size: int) -> None:
    """Have exactly so many events of DAYS days in the store."""
    connection = await asyncpg.connect(url, command_timeout=3600)
    await connection.execute("TRUNCATE events, event_counts, event_sums, event_findings")
    await connection.execute(f"SELECT interlock_make_partitions(current_date - {DAYS + 1}, current_date + 1)")
    # Indexes are made again at the end: that takes a fraction of adding to them row by row.
    indexes = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'events' AND indexname <> 'events_pkey'"
    )
    for name, _ in indexes:
        await connection.execute(f"DROP INDEX {name}")
    statement = (Path(__file__).parent / "scale_load.sql").read_text()
    statement = statement.replace("$1", str(size)).replace("$2", str(DAYS))
    for first in range(0, size, STEP):
        last = min(size, first + STEP) - 1
        await connection.execute(statement.replace("$3", str(first)).replace("$4", str(last)))
    for _, definition in indexes:
        await connection.execute(definition.replace(" ON ONLY ", " ON "))
    await connection.execute("VACUUM (ANALYZE) events, event_counts, event_sums, event_findings")
    await connection.close()


async def ask(url: str) -> dict[str, float]:
    """Return how long each ready question and each report takes, in milliseconds, the median of some."""
    connection = await asyncpg.connect(url, server_settings={"jit": "off"})
    store = open_events(url, Path("/nonexistent"))
    now = time.time()
    week = Filter(since=now - 7 * 86_400)
    asked: dict[str, Callable[[], Awaitable[Any]]] = {
        name: (lambda sql=sql: connection.fetch(sql)) for name, sql in questions().items()
    }
    asked |= reports(store, week, now)
    found = {}
    for name, question in asked.items():
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await question()
            times.append((time.perf_counter() - began) * 1000)
            if times[-1] > 20_000:
                break
        found[name] = round(statistics.median(times), 1)
    await connection.close()
    await store.close()
    return found


def reports(store: Events, week: Filter, now: float) -> dict[str, Callable[[], Awaitable[Any]]]:
    hour = Filter(since=now - 3600)
    return {
        "audit query: last 100": lambda: store.calls(Filter(), 100),
        "audit query: one tool, last 100": lambda: store.calls(Filter(tool="tool_13"), 100),
        "audit query: one agent, denied": lambda: store.calls(Filter(agent="agent-31", decision="deny"), 100),
        "audit show: one call": lambda: store.find("0000000000000064-call"),
        "audit stats: an hour": lambda: store.stats(hour),
        "audit stats: a week": lambda: store.stats(week),
    }


def made(number: int) -> list[LogEntry]:
    """Return events as a proxy writes them, of about the size that real ones have."""
    found, tip = [], start(WRITER).hash
    for seq in range(1, number + 1):
        event = {
            "schema_version": 1,
            "event_id": f"0190cccc-{seq % 65_536:04x}-7000-8000-{seq:012x}",
            "kind": "decided",
            "time": 1_763_000_000.0 + seq / 700,
            "writer": WRITER,
            "host": "proxy-1",
            "proxy_version": "0.1.0",
            "call_id": f"0190dddd-0000-7000-8000-{seq // 2:012x}",
            "agent": f"agent-{seq % 200}",
            "authenticated": True,
            "server": f"server-{seq % 20}.example.com",
            "transport": "http",
            "revision": "2025-11-25",
            "session": f"session-{seq % 200}",
            "jsonrpc_id": seq,
            "method": "tools/call",
            "tool": f"tool_{seq % 300}",
            "arguments": {"path": f"/srv/data/{seq}", "limit": seq % 100},
            "arguments_hash": link(tip, seq, ""),
            "decision": "allow",
            "rules": ["scrub"],
            "gate_ms": 0.21,
            "policy_version": "b1946ac92492d234",
        }
        body = json.dumps(event, separators=(",", ":"))
        tip = link(tip, seq, body)
        found.append(LogEntry(body, WRITER, seq, tip))
    return found


async def measure_sinks(number: int) -> dict[str, Any]:
    entries = made(number)
    text = round(sum(len(entry.body) for entry in entries) / number)
    found: dict[str, Any] = {"event_text_bytes": text}
    with tempfile.TemporaryDirectory() as folder, NatsServers() as nats, ClickHouseServer() as clickhouse:
        place = Path(folder) / "parquet"
        sinks: dict[str, tuple[Sink, Path]] = {
            "nats": (open_nats(NatsSettings(kind="nats", url=tuple(nats.urls))), nats.folder / "0"),
            "clickhouse": (
                open_clickhouse(ClickHouseSettings(kind="clickhouse", url=clickhouse.url)),
                clickhouse.folder / "data",
            ),
            "parquet": (open_parquet(ParquetSettings(kind="parquet", path=str(place))), place),
        }
        for name, (sink, data) in sinks.items():
            began, cpu = time.perf_counter(), time.process_time()
            for first in range(0, number, sink.batch):
                await sink.write(entries[first : first + sink.batch])
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            await sink.close()
            if name == "clickhouse":
                clickhouse.query("OPTIMIZE TABLE interlock_events FINAL")
                sizes = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'interlock_events'"
                size = int(clickhouse.query(sizes))
            else:
                size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
            found[name] = {
                "events_a_second": round(number / seconds),
                "cpu_us_an_event": round(cpu / number * 1e6, 1),
                "bytes_an_event": round(size / number),
            }
            print(name, found[name])
    return found


async def measure_verify(url: str, number: int) -> dict[str, Any]:
    """Return how fast stretches of a chain in Postgres are verified: by one process, and by one for each core."""
    store = open_events(url, Path("/nonexistent"))
    entries = made(number)
    await store.database.execute("TRUNCATE events, event_counts, event_sums, event_findings")
    for first in range(0, number, 5000):
        await store.write(entries[first : first + 5000])
    await store.database.execute("VACUUM ANALYZE events")
    await store.close()
    found: dict[str, Any] = {}
    for processes in (1, 2):
        with open_pool(url, number, processes=processes) as pool:
            warm = [Stretch(WRITER, seq, seq, None) for seq in range(2, 10)]
            async for _ in pool.check(warm):
                pass  # processes are started
            stretches = pool.cut(WRITER, 1, number, start(WRITER).hash, {})
            began = time.perf_counter()
            async for _, result in pool.check(stretches):
                assert result.good
            found[f"events_a_second_{processes}"] = round(number / (time.perf_counter() - began))
    print("verify", found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["store", "sinks", "verify"])
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--sink-events", type=int, default=50_000)
    parser.add_argument("--verify-events", type=int, default=200_000)
    chosen = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "sinks" in chosen.parts:
        results["sinks"] = asyncio.run(measure_sinks(chosen.sink_events))
    if {"store", "verify"} & set(chosen.parts):
        postgres = Postgres(CONFIGURATION)
        try:
            if "verify" in chosen.parts:
                results["verify"] = asyncio.run(measure_verify(postgres.new_database(), chosen.verify_events))
            if "store" in chosen.parts:
                results["store"] = asyncio.run(measure_store(postgres.new_database(), chosen.events))
        finally:
            postgres.stop()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
