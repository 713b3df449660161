"""Figures from events of calls."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.audit.call_event import CallEvent
from proxy.console.overview_figures import Share, figures, percentile


def decided(time: float, decision: str | None = "allow", **fields: Any) -> CallEvent:
    plain = {"method": "tools/call", "reason": "default", "rule": None, "server": "s", "tool": "t", "agent": "a"}
    return CallEvent(time=time, kind="decided", decision=decision, total_ms=None, is_error=None, **(plain | fields))


def completed(time: float, took: float, **fields: Any) -> CallEvent:
    return decided(time, None)._replace(kind="completed", total_ms=took, is_error=False, **fields)


def test_calls_are_counted_in_their_slice() -> None:
    events = [decided(0.5), decided(10), decided(19.9, "deny", rule="r"), decided(-1), decided(20), decided(50)]
    made = figures(events, [0, 10, 20])
    assert [dict(part.calls) for part in made.slices] == [{"allow": 1}, {"allow": 1, "deny": 1}]
    assert (made.total, made.denied, made.sampled) == (3, 1, False)


def test_a_decision_that_is_unknown_counts_as_denied() -> None:
    assert figures([decided(1, "strange")], [0, 10]).denied == 1


def test_denials_count_by_rule_and_without_one_by_reason() -> None:
    events = [decided(1, "deny", rule="r"), decided(1, "deny", rule="r"), decided(1, "deny", reason="default_deny")]
    made = figures([*events, decided(1, "deny", method="tools/list", reason=None)], [0, 10])
    assert [(one.name, one.count) for one in made.top_rules()] == [("r", 2), ("default_deny", 1), ("no rule", 1)]
    assert made.total == 3


def test_what_is_busiest_comes_first_and_says_how_much_was_denied() -> None:
    events = [decided(1, tool="x"), decided(1, "deny", tool="x"), decided(1, tool="y"), decided(1, tool=None)]
    made = figures(events, [0, 10])
    assert made.top("tool") == [Share("x", 2, 1), Share("(none)", 1), Share("y", 1)]
    assert made.top("agent") == [Share("a", 4, 1)]


def test_masks_count_by_kind_wherever_they_were_found() -> None:
    events = [decided(1, detectors=("aws", "aws")), completed(1, 5, detectors=("pii.email",))]
    made = figures(events, [0, 10])
    assert made.top_masks() == [Share("aws", 2), Share("pii.email", 1)]
    assert made.masks == 3


def test_a_weight_stands_for_others() -> None:
    made = figures([decided(1, weight=2.5), decided(1, weight=2.5), completed(1, 7, weight=5.0)], [0, 10])
    assert made.total == 5
    assert made.sampled
    assert made.percentile(99) == 7


@pytest.mark.parametrize(
    ("times", "percent", "found"),
    [
        ([], 50, None),
        ([(7, 1)], 99, 7),
        ([(number, 1) for number in range(1, 101)], 50, 50),
        ([(number, 1) for number in range(1, 101)], 99, 99),
        ([(1, 98), (100, 2)], 95, 1),
        ([(1, 98), (100, 2)], 99, 100),
    ],
)
def test_a_percentile_is_what_so_many_did_not_exceed(
    times: list[tuple[float, float]], percent: int, found: float | None
) -> None:
    assert percentile(times, percent) == found
