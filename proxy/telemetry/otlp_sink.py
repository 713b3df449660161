"""A sink on an OpenTelemetry collector: spans, histograms and log records by OTLP over HTTP.

A batch counts once every signal of it was taken. Metrics go last: their sums are kept only then, so that a batch that
comes again is not counted twice. What a signal had before is not sent again by the same process.
"""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from proxy.core.event import Written
from proxy.core.ids import new_id
from proxy.system.package_data import version
from proxy.telemetry.batches import read_batch, send_halving
from proxy.telemetry.call_memory import NOTHING, CallMemory
from proxy.telemetry.durations import Durations
from proxy.telemetry.http_delivery import HttpDelivery, RefusedError
from proxy.telemetry.log_records import log_record
from proxy.telemetry.otlp_environment import resource_of, sampler_of, target
from proxy.telemetry.otlp_requests import CONTENT_TYPE, OtlpRequests, rejected
from proxy.telemetry.spans import spans
from proxy.telemetry.trace_context import make_sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

    from proxy.core.event import LogEntry
    from proxy.sinks.telemetry_settings import OtlpSettings
    from proxy.telemetry.batches import Numbered
    from proxy.telemetry.call_memory import Remembered
    from proxy.telemetry.exported_event import ExportedEvent

log = structlog.get_logger("interlock.telemetry")

MAX_WRITERS: Final = 1024


class OtlpSink:
    """A Sink on one collector."""

    batch = 512
    linger = 0.0

    def __init__(self, settings: OtlpSettings) -> None:
        """Raise ConfigError where settings or variables cannot be used."""
        self._settings = settings
        self._deliveries: dict[str, HttpDelivery] = {}
        for signal in settings.signals:
            there = target(settings, signal)
            self._deliveries[signal] = HttpDelivery(there.url, there.line)
        self._sampler = make_sampler(*sampler_of(settings))
        self._requests = OtlpRequests(resource_of(settings) | own_resource())
        self._memory = CallMemory()
        self._durations = Durations(time.time())
        self._sent: dict[tuple[str, str], int] = {}
        self._complaint = ""

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Return once the collector took every signal of a batch."""
        events, poison = read_batch(entries, with_arguments=self._settings.arguments)
        known = {index: self._memory.recall(event) for index, event in events}
        for signal in ("traces", "logs"):
            if signal in self._deliveries:
                fresh = [one for one in events if not self._has(signal, one[1])]
                refused = await send_halving(fresh, partial(self._send, signal, known))
                if not refused:  # else it is sent again where the rest fails, so that what is refused is told then
                    self._note(signal, events)
                poison |= refused
        if "metrics" in self._deliveries:
            await self._send_metrics([event for _, event in events])
        return Written(len(entries) - len(poison), poison)

    async def check(self) -> str:
        """Return what the collector takes: an empty request of each signal. Raises SinkError."""
        for delivery in self._deliveries.values():
            await delivery.post(b"", CONTENT_TYPE)
        return f"the collector takes {', '.join(self._deliveries)}"

    async def close(self) -> None:
        for delivery in self._deliveries.values():
            await delivery.close()

    async def _send(self, signal: str, known: dict[int, Remembered], events: Sequence[Numbered]) -> None:
        if signal == "traces":
            made = [span for index, one in events for span in spans(one, self._sampler, dict(known[index].attributes))]
            body = self._requests.traces(made) if made else b""
        else:
            body = self._requests.logs([self._record(one, known[index]) for index, one in events])
        if body:
            await self._post(signal, body)

    def _record(self, event: ExportedEvent, known: Remembered) -> LogRecord:
        # Of a call that nothing is known of any more, the trace is not known either.
        joined = known is not NOTHING or event.kind in ("decided", "completed")
        return log_record(event, known.traceparent, dict(known.attributes), joined=joined)

    async def _send_metrics(self, events: Sequence[ExportedEvent]) -> None:
        if metrics := self._durations.metrics(events):
            try:
                await self._post("metrics", self._requests.metrics(metrics))
            except RefusedError as error:
                # Sums of events that are taken; the next ones bring them again.
                self._complain(str(error))
        self._durations.keep()

    async def _post(self, signal: str, body: bytes) -> None:
        answer = await self._deliveries[signal].post(body, CONTENT_TYPE)
        number, why = rejected(signal, answer)
        if number or why:
            # By OTLP's rules it is not sent again. The collector does not say which ones.
            self._complain(f"the collector rejected {number} of the {signal}: {why}")

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            log.warning("a collector does not take all telemetry", sink=self._settings.title, problem=text)

    def _has(self, signal: str, event: ExportedEvent) -> bool:
        return event.seq is not None and event.seq <= self._sent.get((signal, event.writer or ""), 0)

    def _note(self, signal: str, events: Sequence[Numbered]) -> None:
        if len(self._sent) > MAX_WRITERS:
            self._sent.clear()
        for _, event in events:
            if event.seq is not None:
                self._sent[signal, event.writer or ""] = event.seq


def own_resource() -> dict[str, str]:
    # A name of its own for each process: sums that two processes sent as one would jump back and forth.
    return {"service.version": version(), "service.instance.id": new_id(), "host.name": socket.gethostname()}


def open_sink(settings: OtlpSettings) -> OtlpSink:
    return OtlpSink(settings)
