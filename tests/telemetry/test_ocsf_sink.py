from __future__ import annotations

from pathlib import Path

from proxy.sinks.telemetry_settings import OcsfSettings
from proxy.telemetry.file_sink import FileSink
from proxy.telemetry.http_sink import HttpSink
from proxy.telemetry.ocsf_sink import open_sink


def test_a_path_is_a_file_and_a_url_is_posted_to(tmp_path: Path) -> None:
    assert isinstance(open_sink(OcsfSettings(kind="ocsf", path=tmp_path / "x")), FileSink)
    assert isinstance(open_sink(OcsfSettings(kind="ocsf", url="https://h/x")), HttpSink)
