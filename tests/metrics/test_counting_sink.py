"""The sink that counts what goes through it."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError
from proxy.metrics.counters import AUDIT_WRITE, CALLS, Counters
from proxy.metrics.counting_sink import AT_ONCE, CountingSink

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
    sink, counters = Sink(), Counters(1)
    metered = CountingSink(sink, counters.row(1))
    await metered.record(EVENT)
    metered.record_later(EVENT)
    sink.full = True
    with pytest.raises(AuditUnavailableError):
        await metered.record(EVENT)
    assert sink.taken == [EVENT, EVENT]
    await asyncio.sleep(0)
    numbers = {family.name: numbers for family, _, numbers in counters.sums() if any(numbers)}
    assert numbers[CALLS] == [3]
    assert sum(numbers[AUDIT_WRITE][:-1]) == 1


def test_what_comes_outside_an_event_loop_or_after_one_has_ended_is_counted() -> None:
    counters = Counters(1)
    metered = CountingSink(Sink(), counters.row(1))

    def calls() -> float:
        return sum(numbers[0] for family, _, numbers in counters.sums() if family.name == CALLS)

    metered.record_later(EVENT)
    assert calls() == 1
    lost = asyncio.new_event_loop()
    lost.call_soon(lambda: (metered.record_later(EVENT), lost.stop()))
    lost.run_forever()
    lost.close()

    async def more() -> None:
        for _ in range(AT_ONCE):
            metered.record_later(EVENT)
        await asyncio.sleep(0)

    asyncio.run(more())
    metered.record_later(EVENT)
    assert calls() == 1 + 1 + AT_ONCE + 1


def test_an_event_that_another_thread_counts_first_is_passed_on_all_the_same() -> None:
    class Raced(deque[AuditEvent | float]):
        """Not empty when it is asked, and empty when something is taken: another thread was there in between."""

        def popleft(self) -> AuditEvent | float:
            self.clear()
            return super().popleft()

    sink = Sink()
    metered = CountingSink(sink, Counters(1).row(1))
    metered._uncounted = Raced()
    metered.record_later(EVENT)
    assert sink.taken == [EVENT]
