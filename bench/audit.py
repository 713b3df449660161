"""The audit trail: durable acknowledgements with 1, 32 and 256 producers, shipping to each store, verifying it."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import figures
from bench.figures import Figure
from proxy import logs
from proxy.journal import new_id
from proxy.model import AuditEvent
from proxy.store.checkpoints import CHECKPOINT_FILE
from proxy.store.choice import open_events
from proxy.store.log import LocalLog
from proxy.store.log_files import DaemonLog
from proxy.store.notary import Notary, Places
from proxy.store.shipper import Route, Shipper
from proxy.store.trails import LogsTrail, StoreTrail, WholeTrail
from proxy.store.verify import verify
from tests.postgres import DURABLE, Postgres

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
    store, notary = open_events(url, state_dir), Notary(state_dir, Places(state_dir / CHECKPOINT_FILE))
    started = time.perf_counter()
    moved = await Shipper(Route(state_dir, "bench"), store, notary, None).move_left()
    shipped = Figure(f"{name}: events shipped", moved / (time.perf_counter() - started), "a second")
    started = time.perf_counter()
    report = await verify(WholeTrail(LogsTrail(state_dir), StoreTrail(store)), {})
    assert not report.problems
    verified = Figure(f"{name}: events verified", report.checked / (time.perf_counter() - started), "a second")
    await store.close()
    return [shipped, verified]


def measure(quick: bool) -> Iterator[Figure]:  # noqa: FBT001
    logs.hush()
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
    figures.main(measure, __doc__)
