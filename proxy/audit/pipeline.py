"""The audit pipeline of a running proxy: its local log, the checkpoints of it, and shipping to the store."""

from __future__ import annotations

import shlex
import time
from functools import partial
from typing import TYPE_CHECKING

import structlog

from proxy.audit.checkpoint_places import open_place
from proxy.audit.checkpoint_signer import CheckpointSigner, Watch
from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.audit.decision_log import log_decisions
from proxy.audit.local_log_files import worker_log
from proxy.audit.open_events import open_events
from proxy.audit.shipper import Route, ShippingThread
from proxy.audit.sink_feed import FeedRoute, SinkPlan, open_feed
from proxy.audit.transparency_feed import open_transparency
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError
from proxy.system.database_url import shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.audit.checkpoint_places import CheckpointPlace
    from proxy.audit.local_log import LocalLog
    from proxy.config import Settings
    from proxy.core.interfaces import EventSink
    from proxy.store.database import Database

log = structlog.get_logger("interlock.audit")


class AuditPipeline:
    """The audit pipeline of one process. `sink` takes the events; close it when no more come."""

    def __init__(
        self,
        settings: Settings,
        own: LocalLog,
        *,
        adopts_all: bool,
        logs: Sequence[int] = (1,),
        resting: Database | None = None,
        lead: bool = True,
    ) -> None:
        """Start it. With `adopts_all` it also ships what processes with another store left behind.

        `logs` are the numbers of the logs that this proxy's workers write: none ships another's. `resting` is what asks
        the store all the time, which the worker with the `lead` does.
        """
        self._log = own
        self.sink: EventSink = own if settings.on_audit_failure == "refuse" else LenientSink(own)
        signer = open_signer(settings)
        self._transparency = open_transparency(settings) if lead else None
        self._watch = Watch(signer, lambda: own.head, settings.checkpoint_seconds)
        route = Route(
            state_dir=settings.state_dir,
            spared=frozenset(worker_log(settings.state_dir, number) for number in logs if adopts_all) - {own.path},
            destination=destination(settings),
            adopts_all=adopts_all,
            registry=resting,
            witnesses=lead,
            retention_days=None if settings.postgres else settings.retention_days,
        )
        # Before the shipper begins to delete.
        self._sinks = open_feed(
            plan_sinks(settings), FeedRoute(settings.state_dir, route.spared), own, adopts_all=adopts_all
        )
        self._shipping = ShippingThread(
            route,
            lambda: open_events(
                settings.postgres, settings.state_dir, in_thread=False, connections=settings.database_connections
            ),
            signer,
            own,
        )

    @property
    def problem(self) -> str | None:
        return self._log.problem

    def look_after(self) -> None:
        """Try a log that could not be written again, so that its recovery is noticed without a call."""
        if self._log.problem is not None:
            self._log.try_again()

    def close(self) -> None:
        """Write what is queued, sign the end, and ship what a short time allows."""
        if self._transparency is not None:
            self._transparency.stop()
        self._shipping.stop()  # before the log is closed, whose thread deletes for it
        if self._sinks is not None:
            self._sinks.stop()
        self._log.close()
        self._watch.close()  # after the last event was written: the end is signed as it is
        self._shipping.finish()
        if self._sinks is not None:
            self._sinks.finish()


class LenientSink:
    """An EventSink for `on_audit_failure: allow`: calls go unrecorded while the log fails; the gap is recorded."""

    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self._missed = 0
        self._since = 0.0

    async def record(self, event: AuditEvent) -> None:
        """Return once `event` is on disk, or could not be written."""
        try:
            await self._log.record(event)
        except AuditUnavailableError as error:
            self._since = self._since if self._missed else time.time()
            self._missed += 1
            log.error("a call goes unrecorded", kind=event.kind, call_id=event.call_id, error=str(error))  # noqa: TRY400
            log_decisions([event])
            return
        if self._missed:
            detail = {"missed": self._missed, "since": self._since}
            self._missed = 0
            self._log.record_later(AuditEvent(event_id=new_id(), kind="audit_gap", time=time.time(), detail=detail))

    def record_later(self, event: AuditEvent) -> None:
        self._log.record_later(event)


def destination(settings: Settings) -> str:
    """Return the name of the store that events are shipped to, without secrets."""
    return shown(settings.postgres) if settings.postgres else "embedded"


def plan_sinks(settings: Settings) -> list[SinkPlan]:
    """Return the sinks of the settings. Raises ConfigError where one cannot be used."""
    if not settings.sinks:
        return []
    from proxy.sinks.open_sinks import check_sinks, open_sink  # noqa: PLC0415  most have no sink

    check_sinks(settings.sinks)
    return [SinkPlan(one.title, one.keeps, partial(open_sink, one)) for one in settings.sinks]


def open_signer(settings: Settings) -> CheckpointSigner:
    command = shlex.split(settings.checkpoint_command or "")
    places = checkpoint_copies(settings)
    return CheckpointSigner(settings.state_dir, checkpoint_file(settings), command, copies=places)


def checkpoint_copies(settings: Settings) -> list[CheckpointPlace]:
    return [open_place(text, settings.state_dir) for text in settings.checkpoint_copies]


def checkpoint_file(settings: Settings) -> Path:
    return settings.checkpoint_file or settings.state_dir / CHECKPOINT_FILE
