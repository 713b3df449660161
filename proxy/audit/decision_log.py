"""The log line of each decision, written by the thread that made it durable: it has the event, and no call to serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from proxy.system.log_setup import gathered_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.core.model import AuditEvent

log = structlog.get_logger("interlock.gate")


def log_decisions(events: Iterable[AuditEvent]) -> None:
    """Write a line for each decision on a client's message, all at once. Never raises."""
    try:
        with gathered_lines():
            for event in events:
                # Without a time it is no decision on a message of a client's: those are logged where they are made.
                if event.kind == "decided" and event.gate_ms is not None:
                    _log(event)
    except Exception as error:
        log.exception("decisions could not be logged", error=str(error))


def _log(event: AuditEvent) -> None:
    log.info(
        "decided",
        call_id=event.call_id,
        agent=event.agent,
        server=event.server,
        method=event.method,
        tool=event.tool,
        decision=event.decision,
        reason=event.reason,
        rule=event.rule,
        ms=event.gate_ms,
    )
