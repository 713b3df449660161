"""The settings of an OTLP sink, with what OpenTelemetry's own environment variables say where they are silent.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ has the variables. A setting counts before a variable, and
a variable of one signal before that of all.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args
from urllib.parse import unquote, urlsplit

from proxy.errors import ConfigError
from proxy.sinks.settings import read_secret
from proxy.telemetry.http_delivery import Line
from proxy.telemetry.trace_context import SamplerName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.sinks.telemetry_settings import OtlpSettings

PREFIX: Final = "OTEL_EXPORTER_OTLP_"
DEFAULT_ENDPOINT: Final = "http://localhost:4318"
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
SAMPLERS: Final[tuple[SamplerName, ...]] = get_args(SamplerName.__value__)


@dataclass(frozen=True, slots=True)
class Target:
    """Where one signal goes."""

    url: str
    line: Line


def target(settings: OtlpSettings, signal: str, environ: Mapping[str, str] = os.environ) -> Target:
    """Return where a signal goes. Raises ConfigError."""
    said = _Variables(signal.upper(), environ)
    _check_protocol(said)
    return Target(_url(settings, signal, said), _line(settings, said))


def sampler_of(settings: OtlpSettings, environ: Mapping[str, str] = os.environ) -> tuple[SamplerName, float]:
    """Return the name and the ratio of the sampler. Raises ConfigError."""
    said = settings.sampler or environ.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    if said not in SAMPLERS:
        raise ConfigError(f"OTEL_TRACES_SAMPLER is {said!r}; write one of {', '.join(SAMPLERS)}")
    name: SamplerName = said
    if settings.sampler_ratio is not None:
        return name, settings.sampler_ratio
    text = environ.get("OTEL_TRACES_SAMPLER_ARG") or "1.0"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG is {text!r}; write a number from 0 to 1")
    return name, ratio


def resource_of(settings: OtlpSettings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the attributes of the resource that the settings and variables name."""
    said = _pairs("OTEL_RESOURCE_ATTRIBUTES", environ.get("OTEL_RESOURCE_ATTRIBUTES") or "")
    if name := environ.get("OTEL_SERVICE_NAME"):
        said["service.name"] = name
    return {"service.name": "interlock", **said, **settings.resource}


class _Variables:
    """The variables of one signal, each before that of all signals."""

    def __init__(self, signal: str, environ: Mapping[str, str]) -> None:
        self.signal = signal
        self._environ = environ

    def own(self, name: str) -> str | None:
        return self._environ.get(f"{PREFIX}{self.signal}_{name}") or None

    def get(self, name: str) -> str | None:
        return self.own(name) or self._environ.get(f"{PREFIX}{name}") or None

    def path(self, name: str) -> Path | None:
        found = self.get(name)
        return Path(found) if found else None


def _check_protocol(said: _Variables) -> None:
    if (protocol := said.get("PROTOCOL")) not in (None, "http/protobuf"):
        raise ConfigError(f"{PREFIX}PROTOCOL is {protocol!r}; Interlock speaks http/protobuf, on port 4318 as a rule")


def _url(settings: OtlpSettings, signal: str, said: _Variables) -> str:
    # The variable of one signal is its whole URL; the base of all gets the signal's path.
    own = None if settings.endpoint else said.own("ENDPOINT")
    url = own or f"{(settings.endpoint or said.get('ENDPOINT') or DEFAULT_ENDPOINT).rstrip('/')}/v1/{signal}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ConfigError(f"{PREFIX}ENDPOINT must be http:// or https:// and a host, without a user name")
    return url


def _line(settings: OtlpSettings, said: _Variables) -> Line:
    compression = settings.compression or said.get("COMPRESSION") or "gzip"
    if compression not in ("gzip", "none"):
        raise ConfigError(f"{PREFIX}COMPRESSION is {compression!r}; write gzip or none")
    return Line(
        headers=_headers(settings, said),
        timeout=settings.timeout or _seconds(said.get("TIMEOUT")),
        compress=compression == "gzip",
        ca=settings.ca or said.path("CERTIFICATE"),
        certificate=settings.certificate or said.path("CLIENT_CERTIFICATE"),
        key=settings.key or said.path("CLIENT_KEY"),
    )


def _seconds(milliseconds: str | None) -> float:
    if milliseconds is None:
        return 10.0
    if not milliseconds.isdecimal() or not 0 < int(milliseconds) <= 60_000:
        raise ConfigError(f"{PREFIX}TIMEOUT is {milliseconds!r}; write milliseconds, 1 to 60000")
    return int(milliseconds) / 1000


def _headers(settings: OtlpSettings, said: _Variables) -> dict[str, str]:
    found = _pairs(f"{PREFIX}HEADERS", said.get("HEADERS") or "")
    for name, place in settings.headers.items():
        found[name] = read_secret(place, f"sink {settings.title}, header {name}") or ""
    for name, value in found.items():
        if not _HEADER.fullmatch(name) or not value.isprintable() or not value.isascii():
            raise ConfigError(f"sink {settings.title}: the header {name!r} cannot be sent; write printable ASCII")
    return found


def _pairs(variable: str, text: str) -> dict[str, str]:
    """Return the pairs of a variable in the form of W3C baggage: key=value,key=value, percent-encoded."""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{variable} has a part without =; write key=value,key=value")
        found[unquote(name.strip())] = unquote(value.strip())
    return found
