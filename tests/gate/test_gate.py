"""The gate's two directions share their parts, and large work keeps nobody waiting."""

from __future__ import annotations

import threading

import pytest

from proxy.wire.body import READ_AT_ONCE
from tests.support.gate_fixture import BOOM, World, call


async def test_large_work_is_done_aside_and_small_work_at_once() -> None:
    gate = World().gate
    main = threading.main_thread()
    assert await gate.threads.run(10, threading.current_thread) is main
    assert await gate.threads.run(READ_AT_ONCE + 1, threading.current_thread) is not main


async def test_what_large_work_raises_is_raised() -> None:
    def fail() -> None:
        raise BOOM

    with pytest.raises(RuntimeError, match="boom"):
        await World().gate.threads.run(READ_AT_ONCE + 1, fail)


async def test_a_call_that_requests_begin_is_ended_by_responses() -> None:
    world = World()
    in_flight = (await world.forward(call())).in_flight
    assert len(world.gate.in_flight) == 1
    world.gate.responses.observe(in_flight, {"jsonrpc": "2.0", "id": 7, "result": {}}, b"{}")
    assert len(world.gate.in_flight) == 0
    assert [event.call_id for event in world.events] == [in_flight.call_id] * 2


async def test_a_gate_that_closes_leaves_no_call_without_an_end() -> None:
    world = World()
    await world.forward(call(request_id=1))
    await world.forward(call(request_id=2))
    world.gate.close()
    assert [event.outcome for event in world.events if event.kind == "completed"] == ["unknown"] * 2
    with pytest.raises(RuntimeError, match="shutdown"):
        await world.gate.threads.run(READ_AT_ONCE + 1, list)
