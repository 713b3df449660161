"""Settings of sinks: what is wrong is told with its place and the way out, and no secret is ever among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.sinks.settings import NatsSettings, read_secret


def told(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"INTERLOCK_SINKS": text})
    return str(caught.value)


def test_a_sink_has_defaults_and_its_kind_is_its_name() -> None:
    loaded = load_settings(environ={"INTERLOCK_SINKS": '[{"kind": "nats", "url": "nats://h"}]'})
    (sink,) = loaded.settings.sinks
    assert isinstance(sink, NatsSettings)
    assert (sink.title, sink.keeps, sink.url) == ("nats", 200_000, ("nats://h",))


def test_a_required_sink_keeps_all() -> None:
    (sink,) = Settings(sinks=[{"kind": "parquet", "path": "/x", "required": True, "name": "cold"}]).sinks
    assert (sink.title, sink.keeps) == ("cold", None)


@pytest.mark.parametrize(
    ("text", "place", "way_out"),
    [
        ('[{"kind": "nat"}]', "sinks[0] ", "'nats', 'clickhouse', 'parquet'"),
        ('[{"url": "nats://h"}]', "sinks[0] ", "kind"),
        ('[{"kind": "nats"}]', "sinks[0].url", "required"),
        ('[{"kind": "nats", "url": "http://h"}]', "sinks[0].url[0]", "write nats:// and a host"),
        ('[{"kind": "nats", "url": "nats://me:hunter2@h"}]', "sinks[0].url[0]", "without user, password"),
        ('[{"kind": "clickhouse", "url": "https://h/?password=hunter2"}]', "sinks[0].url", "without user, password"),
        (
            '[{"kind": "clickhouse", "url": "https://h", "password": "hunter2"}]',
            "sinks[0].password",
            "file:PATH or env:",
        ),
        ('[{"kind": "clickhouse", "url": "https://h", "table": "x; DROP"}]', "sinks[0].table", "no name of a table"),
        ('[{"kind": "nats", "url": "nats://h", "subject": "a.>"}]', "sinks[0].subject", "without wildcards"),
        ('[{"kind": "nats", "url": "nats://h", "streem": "x"}]', "sinks[0].streem", "not permitted"),
        (
            '[{"kind": "parquet", "path": "/a"}, {"kind": "parquet", "path": "/b"}]',
            "sinks ",
            "give each its own `name`",
        ),
        ("nats://h", "sinks ", "it is no JSON"),
        ("{}", "sinks ", "tuple"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, place: str, way_out: str) -> None:
    message = told(text)
    assert f"setting {place}" in message
    assert way_out in message
    assert "hunter2" not in message


def test_a_secret_comes_from_a_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s").write_text("hunter2\n")
    monkeypatch.setenv("THE_SECRET", "hunter3")
    assert read_secret(None, "x") is None
    assert read_secret(f"file:{tmp_path}/s", "x") == "hunter2"
    assert read_secret("env:THE_SECRET", "x") == "hunter3"


def test_a_secret_that_cannot_be_read_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for place, why in (
        (f"file:{tmp_path}/no", "No such file"),
        (f"file:{tmp_path}/empty", "is empty"),
        ("env:NO_", "set"),
    ):
        with pytest.raises(ConfigError, match=f"sink x, password.*{why}"):
            read_secret(place, "sink x, password")
