"""A day of 10,000 agents in a minute or so: events at the rates that a day has, through real logs and shippers.

    python -m bench.day [--seconds 60] [--rate 671] [--proxies 4] [--sinks]

Each proxy is a process with its own durable log and the pipeline of a worker. The rate follows a day: quiet nights and
a peak of five times the mean. Measured: how far the store is behind, at worst and in the peak, how long it takes to
catch up at the end, and processor time. The Postgres writes to disk with fsync; JetStream and ClickHouse are as in
bench.scale. Rates are those of the real day; only its length is not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from proxy.audit.pipeline import AuditPipeline
from proxy.audit.restored import open_daemon_log
from proxy.config import Settings
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from tests.support.clickhouse_server import ClickHouseServer
from tests.support.nats_servers import NatsServers
from tests.support.postgres import Postgres

RESULTS = Path(__file__).parent / "results" / "day.json"
CONFIGURATION = """
fsync = on
synchronous_commit = on
max_connections = 100
shared_buffers = 512MB
max_wal_size = 4GB
"""
DAY = (0.2, 0.2, 0.2, 0.3, 0.5, 1.0, 1.8, 5.0, 1.6, 0.6, 0.4, 0.2)  # of the mean; their mean is 1
TICK = 0.05
CATCH_UP_SECONDS = 120.0


def rate_at(share: float) -> float:
    """Return how many times the mean the rate is at a share of the day."""
    return DAY[min(int(share * len(DAY)), len(DAY) - 1)]


def made(number: int, proxy: int) -> AuditEvent:
    ends, call = number % 2 == 1, f"call-{proxy}-{number // 2}"
    common: dict[str, Any] = {
        "event_id": new_id(),
        "time": time.time(),
        "call_id": call,
        "agent": f"agent-{proxy * 2500 + number // 2 % 2500}",
        "server": f"server-{number % 20}.example.com",
        "transport": "http",
        "revision": "2025-11-25",
        "method": "tools/call",
        "tool": f"tool_{number // 2 % 300}",
        "policy_version": "b1946ac92492d234",
    }
    if ends:
        return AuditEvent(kind="completed", total_ms=13.0, upstream_ms=12.5, outcome="done", is_error=False, **common)
    arguments = {"path": f"/srv/data/{number}", "limit": number % 100}
    return AuditEvent(kind="decided", decision="allow", reason="default", arguments=arguments, gate_ms=0.2, **common)


def run_proxy(settings: dict[str, Any], proxy: int, rate: float, seconds: float, told: Any) -> None:
    """Record events at the day's rates; tell how many there are, and what they cost."""
    chosen = Settings(**settings)
    own = open_daemon_log(chosen, 1)
    pipeline = AuditPipeline(chosen, own, adopts_all=True)
    began, number, due, last = time.monotonic(), 0, 0.0, 0.0
    while (passed := time.monotonic() - began) < seconds:
        due, last = due + rate * rate_at(passed / seconds) * (passed - last), passed
        while number < due:
            pipeline.sink.record_later(made(number, proxy))
            number += 1
        told[proxy] = number
        time.sleep(TICK)
    while not told[-1]:  # until the store has all, or the time is up
        time.sleep(TICK)
    pipeline.close()
    told[len(told) // 2 + proxy] = round(time.process_time() * 1000)


def watch(postgres: Postgres, url: str, told: Any, proxies: int, seconds: float) -> dict[str, Any]:
    """Follow how far the store is behind until it has everything."""
    began, behind = time.monotonic(), []
    while True:
        stored = int(postgres.psql("SELECT coalesce(sum(events), 0) FROM event_sums WHERE what = 'all'", url))
        recorded, passed = sum(told[:proxies]), time.monotonic() - began
        behind.append((passed, recorded - stored))
        if passed > seconds and (stored >= recorded or passed > seconds + CATCH_UP_SECONDS):
            peak = [count for at, count in behind if rate_at(at / seconds) == max(DAY) and at < seconds]
            return {
                "recorded": recorded,
                "stored": stored,
                "behind_at_most": max(count for _, count in behind),
                "behind_in_the_peak": max(peak, default=0),
                "seconds_to_catch_up": round(passed - seconds, 1),
                "seconds": round(passed, 1),
            }
        time.sleep(0.25)


def measure(rate: float, seconds: float, proxies: int, *, with_sinks: bool) -> dict[str, Any]:
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="interlock-day-")))
        postgres = Postgres(CONFIGURATION)
        closing.callback(postgres.stop)
        url = postgres.new_database()
        settings: dict[str, Any] = {"database_url": url}
        if with_sinks:
            nats, clickhouse = closing.enter_context(NatsServers()), closing.enter_context(ClickHouseServer())
            first = {"kind": "nats", "url": nats.urls}
            settings["sinks"] = [first, {"kind": "clickhouse", "url": clickhouse.url}]
        spawn = multiprocessing.get_context("spawn")
        told = spawn.Array("q", 2 * proxies + 1)
        running = []
        for proxy in range(proxies):
            own = settings | {"state_dir": folder / str(proxy)}
            running.append(
                spawn.Process(target=run_proxy, args=(own, proxy, rate / proxies, seconds, told), daemon=True)
            )
        for process in running:
            process.start()
        while not all(told[proxy] for proxy in range(proxies)):
            time.sleep(TICK)
        found = watch(postgres, url, told, proxies, seconds)
        told[-1] = 1
        for process in running:
            process.join(30)
        found["cpu_us_an_event_of_proxies"] = round(sum(told[proxies:-1]) * 1000 / max(1, found["recorded"]))
        if with_sinks:
            found["in_clickhouse"] = int(clickhouse.query("SELECT uniqExact(event_id) FROM interlock_events"))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=671.0)
    parser.add_argument("--proxies", type=int, default=4)
    parser.add_argument("--sinks", action="store_true")
    chosen = parser.parse_args()
    found = measure(chosen.rate, chosen.seconds, chosen.proxies, with_sinks=chosen.sinks)
    print(json.dumps(found, indent=1))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    name = f"{chosen.rate:.0f} a second{', with sinks' if chosen.sinks else ''}"
    RESULTS.write_text(json.dumps(results | {name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
