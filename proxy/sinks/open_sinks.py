"""Opens the sinks of the settings. What a kind needs is imported when one of it is opened."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from proxy.sinks.role import Sink
    from proxy.sinks.settings import SinkSettings

# Of each kind: the module with its `open_sink`, and the package that it needs with the extra that brings it.
KINDS: dict[str, tuple[str, str | None, str | None]] = {
    "nats": ("proxy.sinks.nats_sink", "nats", "nats"),
    "clickhouse": ("proxy.sinks.clickhouse_sink", "clickhouse_connect", "clickhouse"),
    "parquet": ("proxy.sinks.parquet_sink", "pyarrow", "parquet"),
    "otlp": ("proxy.telemetry.otlp_sink", None, None),
    "ocsf": ("proxy.telemetry.ocsf_sink", None, None),
    "cloudevents": ("proxy.telemetry.cloudevents_sink", None, None),
    "syslog": ("proxy.telemetry.syslog_sink", None, None),
}


def check_sinks(sinks: tuple[SinkSettings, ...]) -> None:
    """Raise ConfigError where what a sink needs is not installed, or a secret of it cannot be read: at the start."""
    for one in sinks:
        open_sink(one)


def open_sink(settings: SinkSettings) -> Sink:
    """Return a sink, which connects when it is first written to. Raises ConfigError."""
    kind = str(getattr(settings, "kind", ""))
    module, package, extra = KINDS[kind]
    if package is not None:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ConfigError(
                f"sink {settings.title}: the kind {kind} needs {package}; pip install 'mcp-interlock[{extra}]'"
            ) from error
    opened: Sink = importlib.import_module(module).open_sink(settings)
    return opened
