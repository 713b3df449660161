"""Sends a batch in parts where a collector refuses the whole: what no part gets through is named, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.telemetry.exported_event import ExportedEvent, read_entry
from proxy.telemetry.http_delivery import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from proxy.core.event import LogEntry

# An event and its index in the batch.
type Numbered = tuple[int, ExportedEvent]


def read_batch(entries: Sequence[LogEntry], *, with_arguments: bool) -> tuple[list[Numbered], dict[int, str]]:
    """Return the events of a batch, and why others are none."""
    events, poison = list[Numbered](), dict[int, str]()
    for index, entry in enumerate(entries):
        try:
            events.append((index, read_entry(entry, with_arguments=with_arguments)))
        except ValueError as error:
            poison[index] = str(error)
    return events, poison


async def send_halving(
    events: Sequence[Numbered], send: Callable[[Sequence[Numbered]], Awaitable[None]]
) -> dict[int, str]:
    """Send events, in halves of halves where they are refused; return those that are refused alone, and why."""
    if not events:
        return {}
    try:
        await send(events)
    except RefusedError as error:
        if len(events) == 1:
            return {events[0][0]: str(error)}
        middle = len(events) // 2
        return await send_halving(events[:middle], send) | await send_halving(events[middle:], send)
    return {}
