"""Sinks are tried without writing to them, and what is wrong is told with the way out."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from proxy.config import Settings
from proxy.doctor import sinks
from proxy.doctor.findings import CheckResult
from tests.support.otlp_receiver import Answer, receiver


def tried(*given: dict[str, Any]) -> list[CheckResult]:
    return list(sinks.reached(Settings(sinks=given)))  # type: ignore[arg-type]


def test_a_collector_is_asked_with_empty_requests() -> None:
    with receiver() as collector:
        (found,) = tried({"kind": "otlp", "endpoint": collector.url})
        assert (found.state, found.said) == ("ok", "the collector takes traces, metrics, logs")
        assert [one.body for one in collector.requests] == [b"", b"", b""]
        collector.answer = lambda request: Answer(404 if request.path == "/v1/logs" else 200)
        (found,) = tried({"kind": "otlp", "endpoint": collector.url})
        assert found.state == "fail"
        assert "answered 404" in found.said
        assert "signals" in found.said
    (found,) = tried({"kind": "otlp", "endpoint": collector.url})
    assert (found.check, found.state) == ("sink otlp", "fail")
    assert "no call waits for a sink" in found.mend


def test_servers_files_and_secrets(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = tried(
            {"kind": "syslog", "url": f"tcp://127.0.0.1:{port}"},
            {"kind": "syslog", "url": f"udp://127.0.0.1:{port}", "name": "udp"},
            {"kind": "cloudevents", "url": f"http://127.0.0.1:{port}/x"},
            {"kind": "ocsf", "path": str(tmp_path / "x.json")},
            {"kind": "parquet", "path": str(tmp_path)},
        )
        assert [one.state for one in found] == ["ok"] * 5
    assert not (tmp_path / "x.json").exists()
    found = tried(
        {"kind": "syslog", "url": f"tcp://127.0.0.1:{port}"},
        {"kind": "cloudevents", "url": f"http://127.0.0.1:{port}/x"},
        {"kind": "ocsf", "path": str(tmp_path / "none" / "x.json")},
        {"kind": "otlp", "headers": {"x-key": f"file:{tmp_path}/none"}},
    )
    assert [one.state for one in found] == ["fail"] * 4
