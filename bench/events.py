"""How fast events go into the store, and how fast questions are answered: `python -m bench.events [EVENTS]`.

A real Postgres that syncs to disk, events of 30 days; 200,000 of them unless told otherwise. Five million take eight
minutes and 9 GB.
"""

import asyncio
import datetime as dt
import hashlib
import re
import statistics
import sys
import time

import uuid_utils

from bench import figures
from bench.figures import Figure
from proxy.audit.encoder import encode
from proxy.audit.open_events import open_events
from proxy.core.event import Filter, LogEntry
from proxy.core.model import AuditEvent, Finding
from proxy.store.postgres import connect
from proxy.system.package_data import sql_dir
from tests.support.postgres import Postgres

BATCH = 1000
EVENTS = 200_000
CONNECTIONS = 2
DAYS = 30
DURABLE = "shared_buffers = 1GB\nmax_wal_size = 4GB\n"


def make(count, first, last):
    """Return `count` events, two a call, evenly over a time."""
    step = (last - first) / (count // 2)
    for number in range(count // 2):
        moment = first + number * step
        origin = {
            "call_id": str(uuid_utils.uuid7()),
            "agent": f"agent-{number % 20}",
            "server": f"mcp{number % 5}.example.com:443",
            "transport": "http",
            "revision": "2025-11-25",
            "session": f"session-{number % 100}",
            "jsonrpc_id": number,
            "method": "tools/call",
            "tool": f"tool_{number % 40}",
            "policy_version": "3f9a2c770b1d",
        }
        digest = hashlib.sha256(b"%d" % number).hexdigest()
        yield AuditEvent(
            event_id=str(uuid_utils.uuid7()),
            kind="decided",
            time=moment,
            arguments={"path": f"/home/agent/project/file{number}.txt", "limit": number % 100, "deep": True},
            arguments_hash=digest,
            decision="deny" if number % 20 == 0 else "allow",
            reason="policy_denied" if number % 20 == 0 else "default",
            rule=f"rule-{number % 7}" if number % 20 == 0 else None,
            redactions=(Finding("secrets.aws", "$.path", "f"),) if number % 50 == 0 else (),
            gate_ms=0.4,
            **origin,
        )
        yield AuditEvent(
            event_id=str(uuid_utils.uuid7()),
            kind="completed",
            time=moment + 0.005,
            upstream_ms=3.0,
            total_ms=4.0 + number % 50,
            result_digest=digest,
            result_size=400,
            is_error=False,
            outcome="done",
            **origin,
        )


async def ship(store, entries, connections):
    """Return events a second, with so many batches under way at once."""
    batches = iter([entries[start : start + BATCH] for start in range(0, len(entries), BATCH)])

    async def work():
        for batch in batches:
            assert (await store.write(batch)).kept == len(batch)

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return len(entries) / (time.perf_counter() - started)


async def fill(store, count, connections):
    now, rates = time.time(), []
    chunk, entries = 100_000, []
    for number, event in enumerate(make(count, now - DAYS * 86_400, now - 60)):
        entries.append(LogEntry(encode(event), "bench", number, "0" * 64))
        if len(entries) == chunk or number == count - 1:
            rates.append(await ship(store, entries, connections))
            entries = []
    return rates


async def timed(ask):
    times = []
    for _ in range(5):
        started = time.perf_counter()
        found = await ask()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times), len(found)


async def ask_all(store, url, count):
    now = time.time()
    mine = {"limit": 50}
    asked = {
        "calls of a tool in an hour": lambda: store.calls(
            Filter(tool="tool_7", since=now - 10 * 86_400, until=now - 10 * 86_400 + 3600), **mine
        ),
        "latest calls of an agent": lambda: store.calls(Filter(agent="agent-3"), **mine),
        "latest calls of a server": lambda: store.calls(Filter(server="mcp2.example.com:443"), **mine),
        "latest denied": lambda: store.calls(Filter(decision="deny"), **mine),
        "one argument among all": lambda: store.calls(
            Filter(arguments=(("path", f"/home/agent/project/file{count // 5}.txt"),)), **mine
        ),
        "a call by its id": lambda: store.find("01990000-0000-7000-8000-000000000000"),
    }
    rows = [(name, *await timed(ask)) for name, ask in asked.items()]
    connection = await connect(url, 120)
    parts = re.split(r"^-- name: (\w+)\n", (sql_dir() / "audit_queries.sql").read_text(), flags=re.MULTILINE)
    for name, sql in zip(parts[1::2], parts[2::2], strict=True):
        rows.append((name.replace("_", " "), *await timed(lambda sql=sql: connection.fetch(sql))))
    await connection.close()
    return rows


async def fill_and_ask(server, url, count):
    """Fill a store and ask it."""
    store = open_events(url, server.folder, timeout=120)
    rates = await fill(store, count, CONNECTIONS)
    found = [
        Figure("events shipped, median of the batches", statistics.median(rates), "a second"),
        Figure("events shipped, the slowest batch", min(rates), "a second"),
    ]
    server.psql("VACUUM ANALYZE", url)
    size = int(server.psql("SELECT pg_database_size(current_database())", url))
    found.append(Figure(f"{count} events take", size / 1e6, "MB"))
    asked = await ask_all(store, url, count)
    await store.close()
    return found + [Figure(f"{name} ({rows} rows)", milliseconds, "ms") for name, milliseconds, rows in asked]


def measure(quick):
    server = Postgres(DURABLE)
    try:
        url = server.new_database()
        today = dt.datetime.now(dt.UTC).date()
        server.psql(f"SELECT interlock_make_partitions('{today - dt.timedelta(days=DAYS + 1)}', '{today}')", url)
        yield from asyncio.run(fill_and_ask(server, url, EVENTS // 10 if quick else EVENTS))
    finally:
        server.stop()


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].isdecimal():
        EVENTS = int(sys.argv.pop(1))
    figures.main(measure, __doc__)
