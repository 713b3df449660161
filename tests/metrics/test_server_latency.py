from __future__ import annotations

import os

from proxy.metrics.server_latency import BOUNDS, OTHER, SLOTS, ServerLatencies


def test_times_are_summed_by_server_over_workers() -> None:
    times = ServerLatencies(2)
    times.row(1).time("a.example", 0.001)
    times.row(1).time("b.example", 99.0)
    times.row(2).time("a.example", 0.3)
    found = times.sums()
    assert set(found) == {"a.example", "b.example"}
    assert found["a.example"] == [1, 0, 0, 1, 0, 0, 0, 0, 0.301]
    assert found["b.example"] == [0] * len(BOUNDS) + [1, 99.0]


def test_an_agent_cannot_make_more_series_than_there_are_slots() -> None:
    times = ServerLatencies(1)
    row = times.row(1)
    for number in range(200):
        row.time(f"host-{number}", 0.01)
    row.time("host-3", 0.01)
    found = times.sums()
    assert len(found) == SLOTS
    assert sum(found[OTHER][:-1]) == 200 - (SLOTS - 1)
    assert sum(found["host-3"][:-1]) == 2


def test_a_worker_that_replaces_another_goes_on() -> None:
    times = ServerLatencies(1)
    for server in ("a", "b", "a"):
        if (pid := os.fork()) == 0:
            times.row(1).time(server, 1.0)
            os._exit(0)
        os.waitpid(pid, 0)
    assert {name: sum(numbers[:-1]) for name, numbers in times.sums().items()} == {"a": 2, "b": 1}


def test_any_name_can_be_counted() -> None:
    times = ServerLatencies(1)
    for name in ("é" * 300, 'a\n"b', "other", "\ud800"):
        times.row(1).time(name, 1.0)
    assert len(times.sums()) == 4
