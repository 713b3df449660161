"""A large audit trail: how fast it is verified, and how long the ready questions and a week's report take.

`python -m bench.trail [EVENTS] [postgres|sqlite]`: a million events over thirty days unless told otherwise. Each
question is asked three times; the best time counts, since a busy machine only adds to it.
"""

from __future__ import annotations

import asyncio
import re
import resource
import sys
import tempfile
import time
from itertools import batched
from pathlib import Path

from bench.audit import processor_seconds
from bench.events import make
from proxy.audit.chain_reader import StoreChains
from proxy.audit.encoder import encode
from proxy.audit.event_store import Events
from proxy.audit.open_events import open_events
from proxy.audit.stretch_pool import open_pool
from proxy.audit.verify import Evidence, verify
from proxy.core.event import Filter, LogEntry, link, start
from proxy.store.sqlite import STORE_FILE
from proxy.system.package_data import sql_dir
from tests.support.postgres import CONFIGURATION, Postgres

DAY = 86_400
DAYS = 30
WRITER = "bench"


async def fill(store: Events, count: int, now: float) -> None:
    """Put events straight into a store: one writer's chain."""
    await store.prepare(now)
    tip, seq = start(WRITER).hash, 0
    pending: set[asyncio.Task[object]] = set()
    for some in batched(make(count, now - DAYS * DAY, now), 1000):
        entries = []
        for one in some:
            body, seq = encode(one), seq + 1
            tip = link(tip, seq, body)
            entries.append(LogEntry(body, WRITER, seq, tip))
        pending.add(asyncio.create_task(store.write(entries)))
        if len(pending) >= store.parallel_batches:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*pending)


async def measure(postgres: Postgres | None, state_dir: Path, count: int) -> None:
    url = postgres.new_database() if postgres else None
    store, now = open_events(url, state_dir, timeout=3600), time.time()
    if url:
        await store.database.execute("SELECT interlock_make_partitions(current_date - 31, current_date + 2)")
    started = time.perf_counter()
    await fill(store, count, now)
    print(f"{count} events written in {time.perf_counter() - started:.0f} s")
    if url:
        # As autovacuum does it in time: index-only scans need its map.
        from proxy.store.postgres import connect  # noqa: PLC0415

        connection = await connect(url, 3600)
        await connection.execute("VACUUM ANALYZE events")
        await connection.close()
    await _verify(store, url or state_dir / STORE_FILE, count, postgres)
    await _ask(store, now, postgres=bool(url))
    await store.close()


async def _verify(store: Events, source: str | Path, count: int, postgres: Postgres | None) -> None:
    for processes in (1, 2):
        started, own, server = (
            time.perf_counter(),
            _own_seconds(),
            processor_seconds(postgres.folder) if postgres else 0.0,
        )
        with open_pool(source, count, processes=processes) as pool:
            report = await verify(StoreChains(store), Evidence({}), fast=pool)
        assert (report.problems, report.checked) == ([], count)
        seconds = time.perf_counter() - started
        print(f"verified with {processes} processes: {count / seconds:.0f} a second")
        own = 1e6 * (_own_seconds() - own) / count
        server = 1e6 * (processor_seconds(postgres.folder) - server) / count if postgres else 0.0
        print(f"processor time by the event: {own:.1f} µs here, {server:.1f} µs in Postgres")


def _own_seconds() -> float:
    """Return the processor time of this process and of those that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def _ask(store: Events, now: float, *, postgres: bool) -> None:
    ready = (sql_dir() / "audit_queries.sql").read_text() if postgres else ""  # they are for psql and dashboards
    for question, text in re.findall(r"^-- name: (\w+)\n(.*?)(?=^-- name|\Z)", ready, re.MULTILINE | re.DOTALL):
        times = []
        for _ in range(3):
            started = time.perf_counter()
            rows = await store.database.fetch(text.strip().rstrip(";"))
            times.append(1000 * (time.perf_counter() - started))
        print(f"{min(times):8.1f} ms  {len(rows):5} rows  {question}")
    times = []
    for _ in range(3):
        started = time.perf_counter()
        await store.stats(Filter(since=now - 7 * DAY))
        times.append(1000 * (time.perf_counter() - started))
    print(f"{min(times):8.1f} ms  a week's report (audit stats --since 7d)")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    kinds = sys.argv[2:] or ["postgres", "sqlite"]
    for kind in kinds:
        print(kind)
        with tempfile.TemporaryDirectory() as folder:
            postgres = Postgres(f"{CONFIGURATION}max_wal_size = 4GB\n") if kind == "postgres" else None
            try:
                asyncio.run(measure(postgres, Path(folder), count))
            finally:
                if postgres:
                    postgres.stop()


if __name__ == "__main__":
    main()
