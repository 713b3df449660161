"""A sink that posts events by HTTP, in whatever form it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.event import Written
from proxy.sinks.settings import read_secret
from proxy.telemetry.batches import read_batch, send_halving
from proxy.telemetry.http_delivery import HttpDelivery, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.event import LogEntry
    from proxy.sinks.telemetry_settings import CloudEventsSettings, OcsfSettings
    from proxy.telemetry.batches import Numbered
    from proxy.telemetry.exported_event import ExportedEvent


class HttpSink:
    """A Sink that posts `encode`d batches; with `single`, one event a request."""

    linger = 0.0

    def __init__(
        self,
        settings: OcsfSettings | CloudEventsSettings,
        encode: Callable[[Sequence[ExportedEvent]], str],
        content_type: str,
        *,
        single: bool = False,
    ) -> None:
        """Raise ConfigError where a secret or a certificate cannot be read."""
        title = settings.title
        headers = {
            name: read_secret(place, f"sink {title}, header {name}") or "" for name, place in settings.headers.items()
        }
        line = Line(headers=headers, compress=False, ca=settings.ca, certificate=settings.certificate, key=settings.key)
        self._delivery = HttpDelivery(settings.url or "", line)
        self._arguments = settings.arguments
        self._encode = encode
        self._content_type = content_type
        self._single = single
        self.batch = 50 if single else 500

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Return once the server took the batch."""
        events, poison = read_batch(entries, with_arguments=self._arguments)
        parts = [[one] for one in events] if self._single else [events]
        for part in parts:
            poison |= await send_halving(part, self._send)
        return Written(len(entries) - len(poison), poison)

    async def _send(self, events: Sequence[Numbered]) -> None:
        body = self._encode([event for _, event in events]).encode()
        await self._delivery.post(body, self._content_type)

    async def check(self) -> str:
        """Return that the server can be reached; nothing is posted. Raises SinkError."""
        await self._delivery.reach()
        return "the server can be reached"

    async def close(self) -> None:
        await self._delivery.close()
