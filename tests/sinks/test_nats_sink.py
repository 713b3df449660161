"""JetStream as a sink, with a real server: the stream it makes and refuses, large events, credentials, TLS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
import trustme
from nats.js.api import StorageType, StreamConfig

from proxy.core.event import LogEntry, Written
from proxy.core.event_columns import PoisonError
from proxy.sinks import nats_sink as module
from proxy.sinks.nats_sink import CHAIN, ENCODING, ID, SEQ, WRITER, entry_of, message_of
from proxy.sinks.role import SinkError
from tests.support.nats_servers import NatsServers, nats_servers
from tests.support.sink_worlds import NatsWorld, by_id, entries


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServers]:
    with nats_servers() as servers:
        yield servers


async def make(server: NatsServers, **config: Any) -> None:
    client = await nats.connect(server.urls)
    await client.jetstream().add_stream(StreamConfig(**config))
    await client.close()


async def test_the_stream_it_creates_keeps_what_it_takes(server: NatsServers) -> None:
    world = NatsWorld(server, "MADE", duplicate_window=77)
    sink = world.open()
    await sink.write(entries(1, 1))
    await sink.close()
    client = await nats.connect(server.urls)
    config = (await client.jetstream().stream_info("MADE")).config
    await client.close()
    assert (config.storage, config.duplicate_window, config.subjects) == (StorageType.FILE, 77, ["MADE.events"])
    ((_, headers),) = await world.messages()
    (entry,) = entries(1, 1)
    assert headers == {
        ID: "0190aaaa-000001",
        WRITER: entry.writer,
        SEQ: "1",
        CHAIN: entry.chain,
        "Nats-Expected-Stream": "MADE",
    }


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"subjects": ["OTHER.*"]}, "do not include"),
        ({"subjects": ["UNFIT0.events"], "storage": StorageType.MEMORY}, "storage is memory"),
        ({"subjects": ["UNFIT0.>"], "no_ack": True}, "acknowledges nothing"),
    ],
)
async def test_a_stream_that_would_lose_events_is_refused(
    server: NatsServers, config: dict[str, Any], why: str
) -> None:
    await make(server, name="UNFIT0", **config)
    sink = NatsWorld(server, "UNFIT0").open()
    with pytest.raises(SinkError, match=why):
        await sink.write(entries(1, 1))
    await sink.close()
    client = await nats.connect(server.urls)
    await client.jetstream().delete_stream("UNFIT0")
    await client.close()


async def test_a_stream_that_is_missing_and_may_not_be_created_is_told(server: NatsServers) -> None:
    sink = NatsWorld(server, "MISSING", create=False).open()
    with pytest.raises(SinkError, match=r"there is no stream MISSING; create it with subject MISSING\.events"):
        await sink.write(entries(1, 1))
    await sink.close()


async def test_past_the_duplicate_window_a_reader_that_goes_by_id_sees_each_once(server: NatsServers) -> None:
    world = NatsWorld(server, "WINDOW", duplicate_window=1)
    sink, batch = world.open(), entries(1, 3)
    await sink.write(batch)
    client = await nats.connect(server.urls)
    stream = client.jetstream()
    for _ in range(100):  # until the server has forgotten the ids
        await sink.write(batch)
        if (await stream.stream_info("WINDOW")).state.messages > 3:
            break
        await module.asyncio.sleep(0.1)
    await client.close()
    await sink.close()
    found = await world.read()
    assert len(found) > 3
    assert sorted(set(by_id(found))) == by_id(batch)


async def test_an_event_larger_than_a_message_is_compressed_and_one_that_is_still_larger_is_refused(
    server: NatsServers,
) -> None:
    world = NatsWorld(server, "LARGE")
    sink = world.open()
    good, large, noise = entries(1, 3)
    large = entries(2, 2, arguments="z" * (3 << 20))[0]
    noise = entries(3, 3, arguments=os.urandom(2 << 20).hex())[0]
    written = await sink.write([good, large, noise])
    await sink.close()
    assert written.kept == 2
    assert "larger than a message may be" in written.poison[2]
    found = await world.messages()
    assert [headers.get(ENCODING) for _, headers in found] == [None, "gzip"]
    assert [entry_of(*one) for one in found] == [good, large]


async def test_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    world = NatsWorld(NatsServers(), "NONE")
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    sink = world.open()
    with pytest.raises(SinkError, match="no NATS server of nats://127"):
        await sink.write(entries(1, 1))
    await sink.close()


def test_a_header_cannot_be_smuggled_in_by_an_id() -> None:
    with pytest.raises(PoisonError, match="cannot be a header"):
        message_of(LogEntry('{"event_id":"a\\r\\nNats-Rollup: all","kind":"k","time":1}', "w", 1, "c"), 1000)


def test_a_message_that_somebody_else_published_is_read_as_what_it_is() -> None:
    assert entry_of(b"x", None) == LogEntry("x")
    assert entry_of(b"x", {SEQ: "-1", WRITER: "w"}) == LogEntry("x")
    assert entry_of(b"x", {SEQ: "9" * 30, WRITER: "w"}) == LogEntry("x")
    for body, headers in ((b"\xff", {}), (b"no gzip", {ENCODING: "gzip"})):
        with pytest.raises(PoisonError):
            entry_of(body, headers)


def test_a_compressed_message_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INFLATED", 1000)
    with pytest.raises(PoisonError, match="inflates to more than"):
        entry_of(module.gzip.compress(b"x" * 2000), {ENCODING: "gzip"})


async def test_tls_and_a_password_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    leaf = ca.issue_cert("127.0.0.1")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    (tmp_path / "password").write_text("hunter2\n")
    more = (
        f'tls {{ cert_file: "{tmp_path}/cert.pem", key_file: "{tmp_path}/key.pem" }}\n'
        "authorization { user: me, password: hunter2 }"
    )
    with nats_servers(more=more) as servers:
        settings: dict[str, Any] = {"user": "me", "password": f"file:{tmp_path}/password", "ca": tmp_path / "ca.pem"}
        sink = NatsWorld(servers, "TLS", **settings).open()
        assert await sink.write(entries(1, 2)) == Written(2)
        await sink.close()
        (tmp_path / "password").write_text("wrong")
        monkeypatch.setattr(module, "CONNECT_SECONDS", 1.0)  # the client tries for long what it can never trust
        for changed, why in ((settings, "uthorization|roken pipe|reset"), ({**settings, "ca": None}, "ertificate")):
            sink = NatsWorld(servers, "TLS", **changed).open()
            with pytest.raises(SinkError, match=why) as caught:
                await sink.write(entries(1, 2))
            await sink.close()
            assert "hunter2" not in str(caught.value)
            assert "wrong" not in str(caught.value)
