from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.sinks.role import SinkError
from proxy.sinks.telemetry_settings import OcsfSettings
from proxy.telemetry.ocsf_sink import open_sink
from tests.support.ocsf_check import problems
from tests.support.otlp_receiver import Answer, Receiver
from tests.support.telemetry_events import PLAIN, entry
from tests.telemetry.conftest import Opened

MANY = [entry(fields, number) for number, fields in enumerate(PLAIN.values(), 1)]


async def test_lines_are_posted_with_headers_from_files(collector: Receiver, opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("Splunk abc\n")
    headers = {"Authorization": f"file:{tmp_path}/token"}
    made = opened(open_sink(OcsfSettings(kind="ocsf", url=f"{collector.url}/ingest", headers=headers)))
    assert (await made.write(MANY)).kept == len(MANY)
    (request,) = collector.requests
    assert request.path == "/ingest"
    assert request.headers["authorization"] == "Splunk abc"
    assert request.headers["content-type"].startswith("application/x-ndjson")
    assert [problems(json.loads(line)) for line in request.body.decode().splitlines()] == [[]] * len(MANY)


async def test_what_fails_comes_again_and_what_is_refused_is_named(collector: Receiver, opened: Opened) -> None:
    made = opened(open_sink(OcsfSettings(kind="ocsf", url=collector.url)))
    collector.answer = lambda _: Answer(503)
    with pytest.raises(SinkError, match="503"):
        await made.write(MANY)
    collector.answer = lambda request: Answer(400 if b"injection_found" in request.body else 200)
    written = await made.write(MANY)
    assert list(written.poison) == [list(PLAIN).index("finding")]
    assert sum(len(one.body.splitlines()) for one in collector.requests) == len(MANY) - 1


def test_a_header_that_cannot_be_read_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="header X-Key"):
        open_sink(OcsfSettings(kind="ocsf", url="https://h", headers={"X-Key": f"file:{tmp_path}/none"}))
