"""Events flow from a log to JetStream and ClickHouse while their nodes are killed: at the end each is there once.

`make sinks` (SINKS=full) runs it with three nodes of JetStream and many kills; `make test` with one node and few.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.audit import log_thread, sink_feed
from proxy.audit.backlog import read_sinks
from proxy.audit.local_log_files import DaemonLog
from proxy.audit.sink_feed import FeedRoute, SinkPlan, open_feed
from tests.support.clickhouse_server import ClickHouseServer
from tests.support.nats_servers import NatsServers
from tests.support.sink_worlds import ClickHouseWorld, NatsWorld, by_id
from tests.support.timeouts import PATIENCE
from tests.support.trail_fixture import event

FULL = os.environ.get("SINKS") == "full"
NODES, KILLS, EVENTS = (3, 40, 20_000) if FULL else (1, 2, 600)


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE * (4 if FULL else 1)):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.timeout(900 if FULL else 120)
async def test_nodes_are_killed_while_events_flow_and_each_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_feed, "IDLE_SECONDS", 0.02)
    monkeypatch.setattr(log_thread, "LONGEST_PAUSE", 0.5)
    rng = random.Random(7)
    with NatsServers(NODES) as nats, ClickHouseServer() as clickhouse:
        worlds = {
            "nats": NatsWorld(nats, "KILLS", replicas=NODES),
            "clickhouse": ClickHouseWorld(clickhouse, "kills_events"),
        }
        log = DaemonLog(tmp_path)
        plans = [SinkPlan(name, None, world.open) for name, world in worlds.items()]
        thread = open_feed(plans, FeedRoute(tmp_path), log, adopts_all=True)
        assert thread is not None

        async def produce() -> None:
            for number in range(EVENTS):
                await log.record(event(number))
                if number % 200 == 199:
                    await asyncio.to_thread(log.discard, number + 1, {})  # the store is ahead
                    await asyncio.sleep(0.02)

        async def kill() -> None:
            for round_ in range(KILLS):
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                node = rng.randrange(NODES)
                await asyncio.to_thread(nats.kill, node)
                if round_ % 4 == 0:
                    await asyncio.to_thread(clickhouse.halt)
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                await asyncio.to_thread(nats.start, node)
                if round_ % 4 == 0:
                    await asyncio.to_thread(clickhouse.start)

        began = time.monotonic()
        await asyncio.gather(produce(), kill())
        await wait_for(lambda: all(not one.events for one in read_sinks(tmp_path, time.time())))
        await asyncio.to_thread(thread.stop)
        await asyncio.to_thread(log.close)
        await asyncio.to_thread(thread.finish)
        expected = sorted(f"e{number:05}" for number in range(EVENTS))
        for name, world in worlds.items():
            assert by_id(await world.read()) == expected, name
        states = read_sinks(tmp_path, time.time())
        assert [(one.lost, one.events) for one in states] == [(0, 0), (0, 0)]
        print(f"{EVENTS} events, {KILLS} kills, {time.monotonic() - began:.0f} s: 0 lost, 0 doubled")  # noqa: T201
