"""The settings of any sink, by its kind."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.sinks.settings import ClickHouseSettings, NatsSettings, ParquetSettings
from proxy.sinks.telemetry_settings import CloudEventsSettings, OcsfSettings, OtlpSettings, SyslogSettings

type AnySink = Annotated[
    NatsSettings
    | ClickHouseSettings
    | ParquetSettings
    | OtlpSettings
    | OcsfSettings
    | CloudEventsSettings
    | SyslogSettings,
    Field(discriminator="kind"),
]
