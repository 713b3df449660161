"""The sink that counts what goes through it."""

from __future__ import annotations

import pytest

from proxy.errors import AuditUnavailableError
from proxy.metered import MeteredSink
from proxy.meters import AUDIT_WRITE, CALLS, Meters
from proxy.model import AuditEvent

EVENT = AuditEvent(event_id="e", kind="decided", time=0.0, decision="allow", reason="policy_allowed")


class Sink:
    def __init__(self) -> None:
        self.taken: list[AuditEvent] = []
        self.full = False

    async def record(self, event: AuditEvent) -> None:
        if self.full:
            raise AuditUnavailableError("full")
        self.taken.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.taken.append(event)


async def test_every_event_is_passed_on_and_counted_also_one_that_cannot_be_kept() -> None:
    sink, meters = Sink(), Meters(1)
    metered = MeteredSink(sink, meters.row(1))
    await metered.record(EVENT)
    metered.record_later(EVENT)
    sink.full = True
    with pytest.raises(AuditUnavailableError):
        await metered.record(EVENT)
    assert sink.taken == [EVENT, EVENT]
    numbers = {family.name: numbers for family, _, numbers in meters.sums() if any(numbers)}
    assert numbers[CALLS] == [3]
    assert sum(numbers[AUDIT_WRITE][:-1]) == 1
