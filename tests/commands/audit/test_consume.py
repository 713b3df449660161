"""`interlock audit consume`: from a stream to the store and to another sink, each once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.commands.conftest import Run, complaint
from tests.support.nats_servers import nats_servers
from tests.support.sink_worlds import NatsWorld, ParquetWorld, by_id, entries


def test_events_go_from_the_stream_to_the_store_and_to_a_sink(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nats_servers() as servers:
        world, batch = NatsWorld(servers, "CONSUMED"), entries(1, 25)
        cold = ParquetWorld(tmp_path / "cold")

        async def publish() -> None:
            sink = world.open()
            await sink.write(batch)
            await sink.close()

        asyncio.run(publish())
        sinks = [
            {"kind": "nats", "url": servers.urls, "stream": "CONSUMED", "subject": "CONSUMED.events"},
            {"kind": "parquet", "path": str(tmp_path / "cold"), "name": "cold", "every": 1},
        ]
        monkeypatch.setenv("INTERLOCK_SINKS", json.dumps(sinks))
        for to in ("store", "cold"):
            done = run("audit", "consume", "--to", to, "--until-empty", "--json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == {"from": "nats", "to": to, "events": 25, "refused": 0}
        assert len(run("audit", "export").stdout.splitlines()) == 25
        assert by_id(asyncio.run(cold.read())) == by_id(batch)
        again = run("audit", "consume", "--to", "store", "--until-empty")
        assert "0 events from nats to store" in again.stderr


def test_what_is_wrong_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no sink 'nats' in the settings; there is none" in complaint(
        run("audit", "consume", "--to", "store")
    )
    monkeypatch.setenv("INTERLOCK_SINKS", '[{"kind": "parquet", "path": "/x"}, {"kind": "nats", "url": "nats://h"}]')
    assert "is no sink of kind nats" in complaint(run("audit", "consume", "--from", "parquet", "--to", "store"))
    assert "is the stream itself" in complaint(run("audit", "consume", "--to", "nats"))
