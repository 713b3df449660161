"""Events are seen as they come, each once, whatever clocks, shippers and stores do meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import apsw

from proxy.audit.event import Entry
from proxy.audit.following import Following
from proxy.audit.local_log import LOG_FILE
from proxy.errors import StoreUnavailableError
from proxy.store.event_store import Events
from tests.support.trail_fixture import move, write

AHEAD = 2_000_000_000


class Down:
    """A store that does not answer."""

    class database:  # noqa: N801  as an attribute is named
        @staticmethod
        async def fetch(*_: Any) -> Any:
            raise StoreUnavailableError("down")

    async def events(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("down")


def names(found: list[dict[str, Any]]) -> list[str]:
    return [one["event_id"] for one in found]


async def test_events_come_once_whatever_the_clock_says(tmp_path: Path, events: Events) -> None:
    write(tmp_path, [1, AHEAD])
    following = Following(tmp_path)
    await following.begin()
    await following.settle(events)
    assert await following.look(events) == []
    write(tmp_path, [2])
    assert names(await following.look(events)) == ["e00002"]
    write(tmp_path, [3])
    await move(tmp_path, events)  # it was in the log for less than a look
    write(tmp_path, [-90_000])
    assert names(await following.look(events)) == ["e-90000", "e00003"]
    assert await following.look(events) == []


async def test_an_outage_hides_nothing(tmp_path: Path, events: Events) -> None:
    write(tmp_path, [1])
    following = Following(tmp_path)
    await following.begin()
    write(tmp_path, [2])
    await move(tmp_path, events)
    write(tmp_path, [3])
    assert names(await following.look(Down())) == ["e00003"]  # type: ignore[arg-type]
    write(tmp_path, [4])
    assert names(await following.look(events)) == ["e00002", "e00004"]


async def test_what_other_machines_ship_is_seen(tmp_path: Path, events: Events) -> None:
    def entry(name: str, age: float) -> Entry:
        body = {"event_id": name, "kind": "decided", "time": time.time() - age}
        return Entry(json.dumps(body), "elsewhere", 1, "0" * 64)

    await events.write([entry("before", 5)])
    following = Following(tmp_path)
    await following.begin()
    await following.settle(events)
    await events.write([entry("late", 20), entry("now", 0)])
    assert names(await following.look(events)) == ["late", "now"]
    assert await following.look(events) == []


async def test_a_damaged_event_is_passed_over(tmp_path: Path) -> None:
    following = Following(tmp_path)
    await following.begin()
    write(tmp_path, [1, 2, 3])
    connection = apsw.Connection(str(tmp_path / LOG_FILE))
    connection.execute("UPDATE events SET body = 'x' WHERE seq = 2")
    connection.close()
    assert names(await following.look(None)) == ["e00001", "e00003"]
