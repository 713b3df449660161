"""Adding up what several stores say."""

from __future__ import annotations

from dataclasses import replace

from proxy.audit.event import DayStats, DenialStats, SecretStats, Stats, ToolStats
from proxy.audit.sums import add

ONE = Stats(
    events=3,
    first=10.0,
    last=20.0,
    tools=[ToolStats("s", "a", 3, 1, 1, 2, 10.0, 15.0), ToolStats("s", "b", 1, 0, 0, 0, None, None)],
    denials=[DenialStats("r", "x", 2)],
    secrets=[SecretStats("s", "a", "d", 1)],
    days=[DayStats("2026-01-02", 3, 1)],
)
OTHER = Stats(
    events=4,
    first=5.0,
    last=15.0,
    tools=[ToolStats("s", "b", 4, 0, 0, 1, 7.0, 7.0), ToolStats("s", "a", 1, 0, 0, 2, 40.0, 50.0)],
    denials=[DenialStats("r", None, 3), DenialStats("r", "x", 2)],
    secrets=[SecretStats("s", "a", "e", 2)],
    days=[DayStats("2026-01-01", 1, 0), DayStats("2026-01-02", 1, 1)],
)
NONE = Stats(events=0, first=None, last=None, tools=[], denials=[], secrets=[], days=[])


def test_everything_is_summed_up_the_most_first() -> None:
    assert add([ONE, OTHER]) == Stats(
        events=7,
        first=5.0,
        last=20.0,
        tools=[ToolStats("s", "b", 5, 0, 0, 1, 7.0, 7.0), ToolStats("s", "a", 4, 1, 1, 4, 25.0, 50.0)],
        denials=[DenialStats("r", "x", 4), DenialStats("r", None, 3)],
        secrets=[SecretStats("s", "a", "e", 2), SecretStats("s", "a", "d", 1)],
        days=[DayStats("2026-01-01", 1, 0), DayStats("2026-01-02", 4, 2)],
    )


def test_the_order_is_not_that_of_a_database() -> None:
    names = ["B", "a", None, "Z"]
    rows = replace(NONE, denials=[DenialStats("r", name, 2) for name in names])
    assert [row.rule for row in add([rows]).denials] == ["B", "Z", "a", None]


def test_nothing_adds_nothing() -> None:
    assert add([]) == NONE
    assert add([ONE]) == ONE
    assert add([NONE, ONE]) == add([ONE, NONE]) == ONE
    assert add([NONE, NONE]) == NONE
