from __future__ import annotations

from collections.abc import Sequence

import pytest

from proxy.core.event import LogEntry
from proxy.sinks.role import SinkError
from proxy.telemetry.batches import Numbered, read_batch, send_halving
from proxy.telemetry.http_delivery import RefusedError
from tests.support.telemetry_events import CALL, entry


def batch(number: int) -> list[Numbered]:
    return read_batch([entry(CALL | {"event_id": f"e{n}"}, n) for n in range(number)], with_arguments=False)[0]


def test_what_is_no_event_is_named_and_holds_up_no_other() -> None:
    events, poison = read_batch([entry(CALL), LogEntry("no"), entry(CALL)], with_arguments=False)
    assert [index for index, _ in events] == [0, 2]
    assert list(poison) == [1]


@pytest.mark.parametrize("bad", [set(), {0}, {9}, {3, 4}, {0, 5, 9}, set(range(10))])
async def test_what_is_refused_is_found_and_the_rest_arrives_once(bad: set[int]) -> None:
    taken: list[int] = []

    async def send(events: Sequence[Numbered]) -> None:
        indexes = [index for index, _ in events]
        if bad & set(indexes):
            raise RefusedError("400")
        taken.extend(indexes)

    assert set(await send_halving(batch(10), send)) == bad
    assert taken == [index for index in range(10) if index not in bad]


async def test_nothing_is_sent_for_nothing_and_other_failures_pass_through() -> None:
    async def send(_: Sequence[Numbered]) -> None:
        raise SinkError("away")

    assert await send_halving([], send) == {}
    with pytest.raises(SinkError, match="away"):
        await send_halving(batch(4), send)
