"""What durable acknowledgement costs: events a second and p50, p99 with 1, 32 and 256 producers."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from proxy import logs
from proxy.journal import new_id
from proxy.model import AuditEvent
from proxy.store.log import LocalLog

SECONDS = 3.0
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


async def acknowledge(folder: Path, producers: int) -> None:
    log = LocalLog(folder / f"{producers}" / "events.db")
    taken: list[float] = []
    end = time.perf_counter() + SECONDS

    async def produce() -> None:
        while (started := time.perf_counter()) < end:
            await log.record(event())
            taken.append((time.perf_counter() - started) * 1000)

    await asyncio.gather(*(produce() for _ in range(producers)))
    log.close()
    cuts = statistics.quantiles(taken, n=100)
    rate = len(taken) / SECONDS
    print(
        f"{producers:4} producers: {rate:7.0f} durable acks a second   p50 {cuts[49]:6.2f} ms   p99 {cuts[98]:6.2f} ms"
    )


async def main() -> None:
    logs.hush()
    with tempfile.TemporaryDirectory() as folder:
        for producers in (1, 32, 256):
            await acknowledge(Path(folder), producers)


if __name__ == "__main__":
    asyncio.run(main())
