"""Waits, with a bound, for events that are written a moment after the refusal they record."""

from __future__ import annotations

import time
from typing import Any

from tests.support.harness import Interlock
from tests.support.timeouts import PATIENCE


def refusals(interlock: Interlock) -> list[tuple[str, str]]:
    """Return the refusals so far; there may be none."""
    events = interlock.events(some=False)
    return [(event["kind"], event["reason"]) for event in events if event["kind"].endswith("_refused")]


def next_refusal(interlock: Interlock, seen: int) -> dict[str, Any]:
    """Return the first refusal after the `seen` that were there before."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        events = [event for event in interlock.recorded() if event["kind"].endswith("_refused")]
        if len(events) > seen:
            return events[seen]
        time.sleep(0.02)
    raise AssertionError(f"no refusal was recorded after {seen}")
