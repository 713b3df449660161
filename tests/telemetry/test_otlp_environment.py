from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.sinks.telemetry_settings import OtlpSettings
from proxy.telemetry.otlp_environment import resource_of, sampler_of, target


def settings(**more: Any) -> OtlpSettings:
    return OtlpSettings(kind="otlp", **more)


# The cases of the specification of the exporter, and of a setting beside a variable.
@pytest.mark.parametrize(
    ("given", "environ", "url"),
    [
        ({}, {}, "http://localhost:4318/v1/traces"),
        ({}, {"ENDPOINT": "http://collector:4318"}, "http://collector:4318/v1/traces"),
        ({}, {"ENDPOINT": "http://collector:4318/mycollector/"}, "http://collector:4318/mycollector/v1/traces"),
        ({}, {"ENDPOINT": "http://a", "TRACES_ENDPOINT": "http://b/mytraces"}, "http://b/mytraces"),
        ({}, {"ENDPOINT": "http://a", "METRICS_ENDPOINT": "http://b/m"}, "http://a/v1/traces"),
        ({}, {"ENDPOINT": ""}, "http://localhost:4318/v1/traces"),
        ({"endpoint": "https://c"}, {"ENDPOINT": "http://a", "TRACES_ENDPOINT": "http://b"}, "https://c/v1/traces"),
    ],
)
def test_the_url_of_a_signal(given: dict[str, str], environ: dict[str, str], url: str) -> None:
    found = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in environ.items()}
    assert target(settings(**given), "traces", found).url == url


def test_headers_come_from_variables_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    given = settings(headers={"x-api-key": f"file:{tmp_path}/key"})
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Basic%20abc%3D, a=b"}
    line = target(given, "logs", environ).line
    assert line.headers == {"Authorization": "Basic abc=", "a": "b", "x-api-key": "s3cret"}
    assert "s3cret" not in repr(line)
    own = {**environ, "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "c=d"}
    assert target(settings(), "logs", own).line.headers == {"c": "d"}


def test_timeouts_are_milliseconds_and_files_are_paths(tmp_path: Path) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/c.pem",
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/k.pem",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }
    line = target(settings(), "traces", environ).line
    assert (line.timeout, line.compress) == (2.5, False)
    assert (line.ca, line.certificate, line.key) == (Path("/ca.pem"), Path("/c.pem"), Path("/k.pem"))
    assert target(settings(timeout=1, compression="gzip"), "traces", environ).line.compress
    assert target(settings(), "traces", {}).line.timeout == 10


@pytest.mark.parametrize(
    ("name", "value", "way_out"),
    [
        ("EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"),
        ("EXPORTER_OTLP_ENDPOINT", "collector:4317", "http:// or https://"),
        ("EXPORTER_OTLP_ENDPOINT", "https://me:hush@h", "without a user name"),
        ("EXPORTER_OTLP_COMPRESSION", "zstd", "gzip or none"),
        ("EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
        ("EXPORTER_OTLP_HEADERS", "hush", "key=value"),
        ("EXPORTER_OTLP_HEADERS", "a=b%0d%0aX: hush", "printable ASCII"),
        ("EXPORTER_OTLP_HEADERS", "a b=c", "printable ASCII"),
    ],
)
def test_a_variable_that_cannot_be_used_is_told(name: str, value: str, way_out: str) -> None:
    with pytest.raises(ConfigError, match=way_out) as caught:
        target(settings(), "traces", {f"OTEL_{name}": value})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "environ", "found"),
    [
        ({}, {}, ("parentbased_always_on", 1.0)),
        ({}, {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}, ("traceidratio", 0.25)),
        ({"sampler": "always_off"}, {"OTEL_TRACES_SAMPLER": "always_on"}, ("always_off", 1.0)),
        ({"sampler": "traceidratio", "sampler_ratio": 0.0}, {"OTEL_TRACES_SAMPLER_ARG": "1"}, ("traceidratio", 0.0)),
    ],
)
def test_the_sampler(given: dict[str, Any], environ: dict[str, str], found: tuple[str, float]) -> None:
    assert sampler_of(settings(**given), environ) == found


@pytest.mark.parametrize(("name", "value"), [("SAMPLER", "jaeger_remote"), ("SAMPLER_ARG", "2"), ("SAMPLER_ARG", "x")])
def test_a_sampler_that_is_none_is_told(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="write"):
        sampler_of(settings(), {f"OTEL_TRACES_{name}": value})


def test_the_resource() -> None:
    environ = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=x,deployment.environment.name=a%20b", "OTEL_SERVICE_NAME": "y"}
    assert resource_of(settings(), {}) == {"service.name": "interlock"}
    assert resource_of(settings(resource={"team": "t"}), environ) == {
        "service.name": "y",
        "deployment.environment.name": "a b",
        "team": "t",
    }
