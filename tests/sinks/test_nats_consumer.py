"""From JetStream to Postgres and ClickHouse: each event once, whatever came twice, was killed, or is no event."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import nats
import pytest

from proxy.audit.open_events import open_events
from proxy.core.event import Filter, LogEntry, Written
from proxy.sinks.nats_consumer import NatsConsumer
from proxy.sinks.role import SinkError
from tests.support.nats_servers import NatsServers, nats_servers
from tests.support.sink_worlds import NatsWorld, by_id, entries


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServers]:
    with nats_servers() as servers:
        yield servers


async def publish(world: NatsWorld, batch: Sequence[LogEntry]) -> None:
    sink = world.open()
    await sink.write(batch)
    await sink.close()


async def publish_raw(server: NatsServers, subject: str, bodies: Sequence[bytes]) -> None:
    client = await nats.connect(server.urls)
    for body in bodies:
        await client.jetstream().publish(subject, body)
    await client.close()


async def test_what_is_in_the_stream_twice_is_in_the_store_once_with_its_links(
    server: NatsServers, tmp_path: Path
) -> None:
    world, batch = NatsWorld(server, "STORE"), entries(1, 40)
    await publish(world, batch)
    # Without an id the server cannot know them: as after its duplicate window.
    await publish_raw(server, "STORE.events", [entry.body.encode() for entry in batch[:10]])
    store = open_events(None, tmp_path)
    consumer = NatsConsumer(world.settings, "a", 16, 0)
    await consumer.run(store.write, until_empty=True)
    found = [entry for _, entry in await store.events(Filter(), limit=100)]
    await store.close()
    assert by_id(found) == by_id(batch)
    assert sorted(entry[:4] for entry in found) == sorted(entry[:4] for entry in batch)
    assert consumer.consumed.refused == 0


async def test_what_is_no_event_is_refused_once_and_holds_up_nothing(server: NatsServers, tmp_path: Path) -> None:
    world, batch = NatsWorld(server, "JUNK"), entries(1, 3)
    await publish(world, batch[:1])
    await publish_raw(server, "JUNK.events", [b"\xff", b"{}", b"x" * 1000])
    await publish(world, batch[1:])
    store = open_events(None, tmp_path)
    for expected in ((3, 3), (0, 0)):
        consumer = NatsConsumer(world.settings, "a", 2, 0)
        await consumer.run(store.write, until_empty=True)
        assert (consumer.consumed.events, consumer.consumed.refused) == expected
    assert by_id([entry for _, entry in await store.events(Filter())]) == by_id(batch)
    await store.close()


async def test_what_was_not_written_is_not_acknowledged(
    server: NatsServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.sinks.nats_consumer.ACK_WAIT", 0.5)
    world, batch = NatsWorld(server, "FAIL"), entries(1, 20)
    await publish(world, batch)
    store = open_events(None, tmp_path)
    fails = [True]

    async def write(entries: Sequence[LogEntry]) -> Written:
        written = await store.write(entries[:5] if fails else entries)
        if fails:
            fails.pop()
            raise SinkError("killed in the middle")
        return written

    with pytest.raises(SinkError):
        await NatsConsumer(world.settings, "a", 10, 0).run(write, until_empty=True)
    again = NatsConsumer(world.settings, "a", 10, 0)
    while again.consumed.events < 20:  # what was given and not acknowledged comes after ACK_WAIT
        await again.run(write, until_empty=True)
    assert by_id([entry for _, entry in await store.events(Filter())]) == by_id(batch)
    await store.close()
