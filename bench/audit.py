"""The audit trail: durable acknowledgements with 1, 32 and 256 producers, shipping to each store, verifying it.

`python -m bench.audit backlog [EVENTS]` moves a backlog, a million events unless told otherwise, to a Postgres that
syncs to disk, and says what that costs by the event in processor time, which a busy machine distorts less than rates.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import batched
from pathlib import Path

from bench import figures
from bench.events import make
from bench.figures import Figure
from proxy.audit import local_log_sql
from proxy.audit.chain_reader import AllChains, LogChains, StoreChains
from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.audit.encoder import encode
from proxy.audit.local_log import LOG_FILE, LocalLog, open_log
from proxy.audit.local_log_files import DaemonLog
from proxy.audit.open_events import open_events
from proxy.audit.shipper import Route, Shipper
from proxy.audit.verify import Evidence, verify
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.system import log_setup
from tests.support.postgres import DURABLE, Postgres

SECONDS = 3.0
BACKLOG = 50_000
ARGUMENTS = {"path": "/srv/data/report.csv", "options": {"depth": 3, "follow": False}, "note": "x" * 200}


def event() -> AuditEvent:
    return AuditEvent(
        event_id=new_id(),
        kind="decided",
        time=time.time(),
        call_id=new_id(),
        agent="bench",
        server="files.example.com",
        transport="http",
        revision="2025-06-18",
        session="s",
        jsonrpc_id=7,
        method="tools/call",
        tool="read_file",
        arguments=ARGUMENTS,
        arguments_hash="0" * 64,
        decision="allow",
        reason="rule",
        rule="files",
        rules=("files",),
        policy_version="0" * 64,
        gate_ms=0.4,
    )


async def acknowledge(folder: Path, producers: int, seconds: float) -> list[Figure]:
    log = LocalLog(folder / f"{producers}" / "events.db")
    taken: list[float] = []
    end = time.perf_counter() + seconds

    async def produce() -> None:
        while (started := time.perf_counter()) < end:
            await log.record(event())
            taken.append((time.perf_counter() - started) * 1000)

    await asyncio.gather(*(produce() for _ in range(producers)))
    log.close()
    cuts = statistics.quantiles(taken, n=100)
    name = f"durable acknowledgements, {producers} producers"
    return [
        Figure(name, len(taken) / seconds, "a second"),
        Figure(f"{name}: p50", cuts[49], "ms"),
        Figure(f"{name}: p99", cuts[98], "ms"),
    ]


async def ship(name: str, state_dir: Path, url: str | None, backlog: int) -> list[Figure]:
    """Move a backlog to a store, then verify it there."""
    log = DaemonLog(state_dir, max_bytes=8 << 30)
    for _ in range(backlog):
        log.record_later(event())
    log.close()
    store, signer = open_events(url, state_dir), CheckpointSigner(state_dir, state_dir / CHECKPOINT_FILE)
    started = time.perf_counter()
    moved = await Shipper(Route(state_dir, "bench"), store, signer, None).move_left()
    shipped = Figure(f"{name}: events shipped", moved / (time.perf_counter() - started), "a second")
    started = time.perf_counter()
    report = await verify(AllChains(LogChains(state_dir), StoreChains(store)), Evidence({}))
    assert not report.problems
    verified = Figure(f"{name}: events verified", report.checked / (time.perf_counter() - started), "a second")
    await store.close()
    return [shipped, verified]


def fill(state_dir: Path, count: int) -> None:
    """Leave a log of so many events behind, of the last hours."""
    path = state_dir / LOG_FILE
    connection = open_log(path, 64 << 30)
    head = local_log_sql.read_head(connection)
    for some in batched(make(count, time.time() - 6 * 3600, time.time()), 10_000):
        head = head.after(local_log_sql.add(connection, head, [encode(one) for one in some]))
    connection.close()


def processor_seconds(folder: Path) -> float:
    """Return what the processes of a Postgres have used so far."""
    seconds = 0.0
    pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, fields = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if pid in (number, int(fields[1])):
            seconds += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return seconds


async def drain(count: int) -> None:
    """Move a backlog to Postgres."""
    postgres = Postgres(f"{DURABLE}max_wal_size = 4GB\n")
    with tempfile.TemporaryDirectory() as folder:
        state_dir = Path(folder)
        try:
            fill(state_dir, count)
            store = open_events(postgres.new_database(), state_dir)
            await store.prepare(time.time())
            shipper = Shipper(
                Route(state_dir, "bench"), store, CheckpointSigner(state_dir, state_dir / "checkpoints"), None
            )
            used, own, started = processor_seconds(postgres.folder), time.process_time(), time.perf_counter()
            moved = await shipper.move_left()
            seconds = time.perf_counter() - started
            await store.close()
            own, used = time.process_time() - own, processor_seconds(postgres.folder) - used
        finally:
            postgres.stop()
    print(f"{moved} of {count} events drained in {seconds:.1f} s: {moved / seconds:.0f} a second")
    print(f"processor time by the event: proxy {1e6 * own / moved:.1f} µs, Postgres {1e6 * used / moved:.1f} µs")


def measure(quick: bool) -> Iterator[Figure]:  # noqa: FBT001
    log_setup.silence()
    backlog = BACKLOG // 5 if quick else BACKLOG
    with tempfile.TemporaryDirectory() as folder:
        for producers in (1, 32, 256):
            yield from asyncio.run(acknowledge(Path(folder), producers, SECONDS / 3 if quick else SECONDS))
        yield from asyncio.run(ship("sqlite", Path(folder) / "sqlite", None, backlog))
        postgres = Postgres(DURABLE)
        try:
            yield from asyncio.run(ship("postgres", Path(folder) / "postgres", postgres.new_database(), backlog))
        finally:
            postgres.stop()


if __name__ == "__main__":
    if "backlog" in sys.argv[1:2]:
        log_setup.silence()
        asyncio.run(drain(int((sys.argv[2:] or ["1_000_000"])[0])))
    else:
        figures.main(measure, __doc__)
