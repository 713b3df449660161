"""The contract of every sink: what it was given is there once at the end, whatever broke on the way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from proxy.core.event import LogEntry, Written
from proxy.sinks.role import Sink
from tests.support.clickhouse_server import ClickHouseServer
from tests.support.nats_servers import NatsServers, nats_servers
from tests.support.sink_worlds import ClickHouseWorld, NatsWorld, ParquetWorld, SinkWorld, by_id, entries
from tests.support.timeouts import PATIENCE

KINDS = ("nats", "clickhouse", "parquet")
_numbers = itertools.count(1)
HOSTILE = [
    {"tool": "a\u0000b", "agent": "\r\nNats-Msg-Id: x", "reason": "'); DROP TABLE events; --"},
    {
        "arguments": {"deep": [None, True, 1e300, "\u2028", "\U0001f600", "\ud800"], "`x`": "${1:Identifier}"},
        "decision": "deny",
    },
    {"server": "x" * 5000, "arguments": "y" * (1 << 20), "session": "\\N\t\n"},
    {"rules": ["r"], "redactions": [{"detector": "d"}], "total_ms": 1.25, "is_error": False, "result_size": 3},
]


@pytest.fixture(scope="module")
def nats_server() -> Iterator[NatsServers]:
    with nats_servers() as servers:
        yield servers


@pytest.fixture(scope="module")
def clickhouse_server() -> Iterator[ClickHouseServer]:
    with ClickHouseServer() as server:
        yield server


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkWorld]:
    number = next(_numbers)
    if request.param == "nats":
        yield NatsWorld(request.getfixturevalue("nats_server"), f"T{number}")
    elif request.param == "clickhouse":
        yield ClickHouseWorld(request.getfixturevalue("clickhouse_server"), f"t{number}_events")
    else:
        yield ParquetWorld(tmp_path / "trail")


async def give(sink: Sink, batch: Sequence[LogEntry]) -> Written:
    """Give a batch until it is taken, as the feed does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await sink.write(batch)
            except Exception:  # noqa: BLE001  the feed tries again whatever it is
                await asyncio.sleep(0.05)


async def assert_once(world: SinkWorld, expected: Sequence[LogEntry]) -> None:
    found = await world.read()
    assert by_id(found) == by_id(expected)
    assert sorted(entry[:4] for entry in found) == sorted(entry[:4] for entry in expected)


async def test_every_event_is_there_once_with_its_text_and_its_link(world: SinkWorld) -> None:
    sink, batch = world.open(), entries(1, 50)
    assert await sink.write(batch) == Written(50)
    await sink.close()
    await assert_once(world, batch)


async def test_a_batch_that_comes_again_changes_nothing(world: SinkWorld) -> None:
    sink, batch = world.open(), entries(1, 30)
    for _ in range(3):
        assert await sink.write(batch) == Written(30)
    await sink.close()
    await assert_once(world, batch)


async def test_after_a_crash_batches_may_be_cut_otherwise(world: SinkWorld) -> None:
    batch = entries(1, 40)
    first = world.open()
    await first.write(batch[:10])
    await first.write(batch[10:25])  # the process is killed before the position is noted
    await first.close()
    second = world.open()
    await second.write(batch[10:18])
    await second.write(batch[18:40])
    await second.close()
    await assert_once(world, batch)


async def test_part_of_a_batch_was_taken_before(world: SinkWorld) -> None:
    sink, batch = world.open(), entries(1, 20)
    await sink.write(batch[5:12])
    await sink.write(batch)
    await sink.close()
    await assert_once(world, batch)


async def test_what_is_behind_it_is_killed_in_between(world: SinkWorld) -> None:
    sink, batch = world.open(), entries(1, 60)
    await sink.write(batch[:20])
    world.halt()
    giving = asyncio.create_task(give(sink, batch[20:40]))
    await asyncio.sleep(0.1)
    world.start()
    await giving
    await give(sink, batch[40:])
    await sink.close()
    await assert_once(world, batch)


async def test_a_write_that_was_cancelled_comes_again(world: SinkWorld) -> None:
    sink, batch = world.open(), entries(1, 200)
    for delay in (0.0, 0.001, 0.01):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await sink.write(batch)
    await give(sink, batch)
    await sink.close()
    await assert_once(world, batch)


async def test_two_writers_are_kept_apart(world: SinkWorld) -> None:
    sink = world.open()
    one, other = entries(1, 10), entries(1, 10, "0190bbbb-0000-7000-8000-000000000002")
    await sink.write(one)
    await sink.write(other)
    await sink.write(one)
    await sink.close()
    await assert_once(world, [*one, *other])


@pytest.mark.parametrize("fields", HOSTILE)
async def test_hostile_content_arrives_as_it_is(world: SinkWorld, fields: dict[str, object]) -> None:
    sink, batch = world.open(), entries(1, 3, **fields)
    assert await sink.write(batch) == Written(3)
    await sink.close()
    await assert_once(world, batch)


async def test_what_is_no_event_keeps_no_other_out(world: SinkWorld) -> None:
    good = entries(1, 4)
    bad = LogEntry("no event", good[1].writer, 2, good[1].chain)
    odd = LogEntry('{"event_id":"","kind":"k","time":1}', good[2].writer, 3, good[2].chain)
    sink = world.open()
    written = await sink.write([good[0], bad, odd, good[3]])
    await sink.close()
    assert (written.kept, sorted(written.poison)) == (2, [1, 2])
    await assert_once(world, [good[0], good[3]])
