"""Bounds on processor time grow with a slow machine, and not without end."""

from __future__ import annotations

import pytest

from tests.support import machine_pace


@pytest.mark.parametrize(("seconds", "factor"), [(0.001, 1.0), (0.01, 1.0), (0.03, 3.0), (5.0, 20.0)])
def test_a_bound_grows_with_a_slow_machine_up_to_twenty_times(
    seconds: float, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_pace, "_work", lambda: seconds)
    assert machine_pace.slowness() == pytest.approx(factor)


def test_the_work_takes_processor_time() -> None:
    assert machine_pace._work() > 0
