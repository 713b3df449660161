"""When a canary is ended: shares over the same time, with enough calls on both sides."""

from __future__ import annotations

import pytest

from proxy.core.model import AuditEvent
from proxy.core.rollout import SideCounts
from proxy.rollout.canary import Bounds, Tally, jump

BOUNDS = Bounds(seconds=60, calls=20, denials=0.1, errors=0.05)


@pytest.mark.parametrize(
    ("stable", "canary", "said"),
    [
        (SideCounts(100, 10), SideCounts(100, 20), None),
        (SideCounts(100, 10), SideCounts(100, 21), "denials jumped: 21.0%"),
        (SideCounts(100, 0, 1), SideCounts(100, 0, 7), "errors jumped"),
        (SideCounts(100, 0, 1), SideCounts(100, 0, 6), None),
        (SideCounts(19, 0), SideCounts(1000, 1000), None),
        (SideCounts(1000, 0), SideCounts(19, 19), None),
        (SideCounts(20, 0), SideCounts(20, 20), "denials jumped: 100.0%"),
        (SideCounts(1000, 900), SideCounts(100, 95), None),
        (SideCounts(100, 50), SideCounts(100, 0), None),
    ],
)
def test_a_jump_is_told_by_shares(stable: SideCounts, canary: SideCounts, said: str | None) -> None:
    found = jump({"stable": stable, "canary": canary}, BOUNDS)
    assert found is None if said is None else found is not None and found.startswith(said)


def test_without_calls_nothing_is_judged() -> None:
    assert jump({}, BOUNDS) is None
    assert jump({"canary": SideCounts(1000, 1000)}, BOUNDS) is None


def event(kind: str, version: str, decision: str | None = None, outcome: str | None = None) -> AuditEvent:
    return AuditEvent(event_id="e", kind=kind, time=0.0, policy_version=version, decision=decision, outcome=outcome)


def test_events_count_for_the_version_that_decided() -> None:
    tally = Tally()
    tally.count(event("decided", "v1", "deny"))  # no canary runs
    tally.follow(("v1", "v2"))
    for one in (
        event("decided", "v1", "allow"),
        event("decided", "v1", "deny"),
        event("decided", "v2", "deny"),
        event("decided", "v0", "deny"),
        event("completed", "v2", outcome="upstream_error"),
        event("completed", "v2", outcome="http_502"),
        event("completed", "v2", outcome="tool_error"),
        event("completed", "v1", outcome="done"),
        event("proposed", "v2"),
    ):
        tally.count(one)
    counted = tally.take()
    assert counted == {"stable": SideCounts(2, 1, 0), "canary": SideCounts(1, 1, 2)}
    assert tally.take() == {}
    tally.put_back(counted)
    tally.count(event("decided", "v1", "allow"))
    tally.follow(("v1", "v2"))
    assert tally.take()["stable"] == SideCounts(3, 1, 0)
    tally.count(event("decided", "v1", "allow"))
    tally.follow(("v1", "v3"))
    assert tally.take() == {}
