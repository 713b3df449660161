"""Settings of sinks in other systems' forms: what is wrong is told, and no secret is among them."""

from __future__ import annotations

import pytest

from proxy.config import Settings, load_settings
from proxy.errors import ConfigError
from proxy.sinks.telemetry_settings import CloudEventsSettings, OcsfSettings, OtlpSettings, SyslogSettings


def test_defaults() -> None:
    kinds = [
        {"kind": "otlp"},
        {"kind": "ocsf", "path": "/x"},
        {"kind": "cloudevents", "url": "https://h"},
        {"kind": "syslog", "url": "tls://h:6514"},
    ]
    otlp, ocsf, cloudevents, syslog = Settings(sinks=kinds).sinks  # type: ignore[arg-type]
    assert isinstance(otlp, OtlpSettings)
    assert isinstance(ocsf, OcsfSettings)
    assert isinstance(cloudevents, CloudEventsSettings)
    assert isinstance(syslog, SyslogSettings)
    assert (otlp.endpoint, otlp.signals, otlp.arguments) == (None, ("traces", "metrics", "logs"), False)
    assert (cloudevents.mode, syslog.format) == ("batch", "rfc5424")
    assert not any(one.arguments for one in (ocsf, cloudevents, syslog))


@pytest.mark.parametrize(
    ("text", "place", "way_out"),
    [
        ('[{"kind": "otlp", "endpoint": "collector:4317"}]', "sinks[0].endpoint", "https:// and a host"),
        ('[{"kind": "otlp", "endpoint": "https://me:hunter2@h"}]', "sinks[0].endpoint", "without user"),
        ('[{"kind": "otlp", "headers": {"x-key": "hunter2"}}]', "sinks[0].headers", "file:PATH or env:NAME"),
        ('[{"kind": "otlp", "headers": {"a b": "env:X"}}]', "sinks[0].headers", "no name of a header"),
        ('[{"kind": "otlp", "signals": []}]', "sinks[0].signals", "at least 1"),
        ('[{"kind": "otlp", "signals": ["spans"]}]', "sinks[0].signals[0]", "'traces', 'metrics' or 'logs'"),
        ('[{"kind": "otlp", "sampler_ratio": 2}]', "sinks[0].sampler_ratio", "less than or equal to 1"),
        ('[{"kind": "ocsf"}]', "sinks[0]", "one of path: and url:"),
        ('[{"kind": "ocsf", "path": "/x", "url": "https://h"}]', "sinks[0]", "one of path: and url:"),
        ('[{"kind": "cloudevents", "url": "ftp://h"}]', "sinks[0].url", "https:// and a host"),
        ('[{"kind": "syslog", "url": "h:514"}]', "sinks[0].url", "udp://HOST:514"),
        ('[{"kind": "syslog", "url": "tcp://h"}]', "sinks[0].url", "udp://HOST:514"),
        ('[{"kind": "syslog", "url": "tcp://h:99999"}]', "sinks[0].url", "udp://HOST:514"),
        ('[{"kind": "syslog", "url": "udp://u:hunter2@h:514"}]', "sinks[0].url", "udp://HOST:514"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, place: str, way_out: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"INTERLOCK_SINKS": text})
    assert f"setting {place}" in str(caught.value)
    assert way_out in str(caught.value)
    assert "hunter2" not in str(caught.value)
