"""The settings of sinks that speak the forms of other systems: OpenTelemetry, OCSF, CloudEvents and syslog."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from proxy.core.defaults import empty_dict
from proxy.sinks.settings import HttpUrl, SecretPlace, SinkSettings, UserPath

_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


def _header_names(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if not _HEADER.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header; write letters, digits and -")
    return value


def _syslog_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        whole = parts.scheme in ("udp", "tcp", "tls") and parts.hostname and parts.port
    except ValueError:
        whole = None
    if not whole or parts.path or parts.query or parts.username is not None:
        raise ValueError("write udp://HOST:514, tcp://HOST:601 or tls://HOST:6514")
    return value


type Headers = Annotated[dict[str, SecretPlace], AfterValidator(_header_names)]
type Signal = Literal["traces", "metrics", "logs"]


class _ExportSettings(SinkSettings):
    arguments: bool = Field(False, description="Whether arguments of tools are sent, masked as they are recorded.")


class _HttpSettings(_ExportSettings):
    headers: Headers = Field(
        default_factory=empty_dict, description="Headers, each with file:PATH or env:NAME of its value."
    )
    ca: UserPath | None = Field(None, description="PEM file with the CA of the collector.")
    certificate: UserPath | None = Field(None, description="PEM file with a client certificate.")
    key: UserPath | None = Field(None, description="PEM file with its key, where that is another file.")


class OtlpSettings(_HttpSettings):
    """An OpenTelemetry collector. What is not set here is read from the variables OTEL_EXPORTER_OTLP_*."""

    kind: Literal["otlp"]
    endpoint: HttpUrl | None = Field(None, description="The collector's URL, before /v1/traces.")
    signals: tuple[Signal, ...] = Field(
        ("traces", "metrics", "logs"), min_length=1, description="What is sent: traces, metrics, logs."
    )
    compression: Literal["gzip", "none"] | None = Field(None, description="gzip (the default) or none.")
    timeout: float | None = Field(None, gt=0, le=60, description="Seconds that one request may take.")
    sampler: (
        Literal[
            "always_on",
            "always_off",
            "traceidratio",
            "parentbased_always_on",
            "parentbased_always_off",
            "parentbased_traceidratio",
        ]
        | None
    ) = Field(None, description="Which traces are sent; the audit trail has every call.")
    sampler_ratio: float | None = Field(None, ge=0, le=1, description="The share that a ratio sampler takes.")
    resource: dict[str, str] = Field(
        default_factory=empty_dict,
        description="More attributes of the resource, such as deployment.environment.name.",
    )


class OcsfSettings(_HttpSettings):
    """OCSF events, one a line: to a file, or by HTTP."""

    kind: Literal["ocsf"]
    path: UserPath | None = Field(None, description="File to append to.")
    url: HttpUrl | None = Field(None, description="Where batches are posted to, as application/x-ndjson.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.url is None):
            raise ValueError("write one of path: and url:")
        return self


class CloudEventsSettings(_HttpSettings):
    """CloudEvents by HTTP."""

    kind: Literal["cloudevents"]
    url: HttpUrl = Field(description="Where events are posted to.")
    mode: Literal["batch", "structured"] = Field("batch", description="Many events in a request, or one.")


class SyslogSettings(_ExportSettings):
    """Syslog messages by RFC 5424."""

    kind: Literal["syslog"]
    url: Annotated[str, AfterValidator(_syslog_url)] = Field(
        description="udp://HOST:514, tcp://HOST:601 or tls://HOST:6514."
    )
    format: Literal["rfc5424", "cef"] = Field("rfc5424", description="Structured data, or CEF as the message's text.")
    timeout: float = Field(10, gt=0, le=50, description="Seconds that a batch may take.")
    ca: UserPath | None = Field(None, description="PEM file with the CA of the server.")
    certificate: UserPath | None = Field(None, description="PEM file with a client certificate.")
    key: UserPath | None = Field(None, description="PEM file with its key, where that is another file.")
