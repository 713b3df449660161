"""What is counted: over workers, over forks, and with labels that no agent can make."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque

import pytest

from proxy.core.model import AuditEvent, Finding
from proxy.errors import AuditUnavailableError
from proxy.metrics.counters import (
    AT_ONCE,
    AUDIT_WRITE,
    CALLS,
    CONNECTIONS,
    GATE,
    UNDER_WAY,
    Counters,
    CountingSink,
)


def event(kind: str, **fields: object) -> AuditEvent:
    return AuditEvent(event_id="e", kind=kind, time=0.0, **fields)  # type: ignore[arg-type]


def counted(counters: Counters) -> dict[tuple[str, tuple[str, ...]], float]:
    found = {
        (family.name, labels): numbers[0] for family, labels, numbers in counters.sums() if family.kind == "counter"
    }
    return {key: number for key, number in found.items() if number}


def test_events_are_counted_by_what_they_say_and_unknown_words_are_other() -> None:
    counters = Counters(2)
    first, second = counters.row(1), counters.row(2)
    first.count(event("decided", decision="deny", reason="policy_denied", gate_ms=2.0))
    second.count(event("decided", decision="deny", reason="policy_denied", gate_ms=70_000.0))
    second.count(event("decided", decision="deny", reason="made up by somebody"))
    found = (Finding("pii.email", "a", "f"), Finding("custom.badge", "a", "f"), Finding("what", "a", "f"))
    first.count(event("completed", outcome="http_503", upstream_ms=1.0, redactions=found))
    first.count(event("request_refused", reason="stopping"))
    first.count(event("pins_approved"))
    assert counted(counters) == {
        ("interlock_calls_total", ("deny", "policy_denied")): 2,
        ("interlock_calls_total", ("deny", "other")): 1,
        ("interlock_outcomes_total", ("http_5xx",)): 1,
        ("interlock_refused_total", ("request_refused", "stopping")): 1,
        ("interlock_redactions_total", ("pii.email",)): 1,
        ("interlock_redactions_total", ("custom",)): 1,
        ("interlock_redactions_total", ("other",)): 1,
    }
    (gate,) = [numbers for family, _, numbers in counters.sums() if family.name == GATE]
    assert (gate[2], gate[-2], round(gate[-1], 3)) == (1, 1, 70.002)


def test_a_forked_worker_counts_into_the_same_memory_and_the_next_one_goes_on() -> None:
    counters = Counters(2)
    for _ in range(2):
        if (pid := os.fork()) == 0:
            row = counters.row(2)
            row.begin()
            row.count(event("decided", decision="allow", reason="policy_allowed"))
            row.set(CONNECTIONS, 7)
            os._exit(0)
        os.waitpid(pid, 0)
    counters.row(1).set(CONNECTIONS, 2)
    assert counted(counters) == {("interlock_calls_total", ("allow", "policy_allowed")): 2}
    assert counters.row(1).in_all(CONNECTIONS) == 9
    counters.row(2).begin()
    assert (counters.row(1).in_all(CONNECTIONS), counters.row(1).in_all(UNDER_WAY)) == (2, 0)


def test_counting_an_event_costs_little() -> None:
    row = Counters(4).row(3)
    one = event("decided", decision="allow", reason="policy_allowed", gate_ms=1.5)
    best = 1.0
    for _ in range(5):
        begun = time.thread_time()
        for _ in range(1000):
            row.count(one)
        best = min(best, (time.thread_time() - begun) / 1000)
    assert best < 50e-6  # about 2 µs


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
