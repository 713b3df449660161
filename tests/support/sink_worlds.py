"""What the contract tests need of each kind of sink: to open it, to break what is behind it, and to read it back."""

from __future__ import annotations

import abc
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import nats
from nats.js.api import AckPolicy, ConsumerConfig

from proxy.core.event import LogEntry, link, start
from proxy.sinks import clickhouse_sink, parquet_sink
from proxy.sinks.nats_sink import entry_of, open_sink
from proxy.sinks.role import Sink
from proxy.sinks.settings import ClickHouseSettings, NatsSettings, ParquetSettings
from tests.support.clickhouse_server import ClickHouseServer
from tests.support.nats_servers import NatsServers

WRITER = "0190aaaa-0000-7000-8000-000000000001"


def entries(first: int, last: int, writer: str = WRITER, **fields: Any) -> list[LogEntry]:
    """Return events number `first` to `last` of a writer, with their links, as a log gives them."""
    made, tip = [], start(writer).hash
    for seq in range(1, last + 1):
        event = {"event_id": f"{writer[:8]}-{seq:06}", "kind": "decided", "time": 1_763_000_000.5 + seq, **fields}
        body = json.dumps(event, ensure_ascii="\\ud" in json.dumps(event), separators=(",", ":"))
        tip = link(tip, seq, body)
        made.append(LogEntry(body, writer, seq, tip))
    return made[first - 1 :]


class SinkWorld(abc.ABC):
    """What is behind a sink."""

    @abc.abstractmethod
    def open(self) -> Sink:
        """Return a sink as a process opens it at its start."""

    @abc.abstractmethod
    async def read(self) -> list[LogEntry]:
        """Return what is there at the end, each event as often as whoever reads it sees it; by writer and number."""

    @abc.abstractmethod
    def halt(self) -> None:
        """Kill what is behind the sink."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start it again."""


class NatsWorld(SinkWorld):
    def __init__(self, servers: NatsServers, stream: str, **settings: Any) -> None:
        self.servers = servers
        self.settings = NatsSettings(
            kind="nats", url=tuple(servers.urls), stream=stream, subject=f"{stream}.events", **settings
        )

    def open(self) -> Sink:
        return open_sink(self.settings)

    async def read(self) -> list[LogEntry]:
        return [entry_of(data, headers) for data, headers in await self.messages()]

    async def messages(self) -> list[tuple[bytes, dict[str, str]]]:
        """Read the stream, again and again while a cluster has no leader yet."""
        for _ in range(20):
            try:
                return await self._messages()
            except nats.errors.Error:
                await asyncio.sleep(0.5)
        return await self._messages()

    async def _messages(self) -> list[tuple[bytes, dict[str, str]]]:
        client = await nats.connect(self.servers.urls)
        try:
            stream = client.jetstream()
            count = (await stream.stream_info(self.settings.stream)).state.messages
            found: list[tuple[bytes, dict[str, str]]] = []
            if count:
                config = ConsumerConfig(ack_policy=AckPolicy.NONE)  # else no more than 1000 are given
                reader = await stream.pull_subscribe(self.settings.subject, stream=self.settings.stream, config=config)
                while len(found) < count:
                    found += [(one.data, one.headers or {}) for one in await reader.fetch(1000, timeout=5)]
            return found
        finally:
            await client.close()

    def halt(self) -> None:
        self.servers.kill()

    def start(self) -> None:
        self.servers.start()


def by_id(found: Sequence[LogEntry]) -> list[str]:
    return sorted(json.loads(entry.body)["event_id"] for entry in found)


class ClickHouseWorld(SinkWorld):
    """A table on chdb's engine. It is read as the docs say: with FINAL."""

    def __init__(self, server: ClickHouseServer, table: str) -> None:
        self.server = server
        self.settings = ClickHouseSettings(kind="clickhouse", url=server.url, table=table)

    def open(self) -> Sink:
        return clickhouse_sink.open_sink(self.settings)

    async def read(self) -> list[LogEntry]:
        text = await asyncio.to_thread(
            self.server.query, f"SELECT body, writer, seq, chain FROM {self.settings.table} FINAL", "JSONEachRow"
        )
        rows = [json.loads(line) for line in text.splitlines() if line]
        return [LogEntry(row["body"], row["writer"], int(row["seq"]), row["chain"]) for row in rows]

    def halt(self) -> None:
        self.server.halt()

    def start(self) -> None:
        self.server.start()


class ParquetWorld(SinkWorld):
    """A folder, read by DuckDB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = ParquetSettings(kind="parquet", path=str(folder))

    def open(self) -> Sink:
        return parquet_sink.open_sink(self.settings)

    async def read(self) -> list[LogEntry]:
        query = f"SELECT body, writer, seq, chain FROM read_parquet('{self.folder}/*/*.parquet')"
        return [LogEntry(*row) for row in duckdb.sql(query).fetchall()]

    def halt(self) -> None:
        self.folder.rename(self.folder.with_name("away"))
        self.folder.touch()  # a place that cannot be written

    def start(self) -> None:
        self.folder.unlink()
        self.folder.with_name("away").rename(self.folder)
