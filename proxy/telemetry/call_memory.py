"""What a `decided` event said that later events of its call do not repeat. Bounded; nothing depends on it. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.telemetry import attributes

if TYPE_CHECKING:
    from proxy.telemetry.exported_event import ExportedEvent

MAX_CALLS: Final = 4096
_SHARED: Final = ("reason", "rule", "rules", "shadow_rules", "detectors")


class Remembered(NamedTuple):
    """The trace of a call, and attributes for its spans."""

    traceparent: str | None
    attributes: dict[str, Any]


NOTHING: Final = Remembered(None, {})


class CallMemory:
    """The last calls that were decided."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Remembered] = OrderedDict()

    def recall(self, event: ExportedEvent) -> Remembered:
        """Return what is known of an event's call; a `decided` event is remembered."""
        if event.call_id is None:
            return NOTHING
        if event.kind != "decided":
            known = self._calls.get(event.call_id, NOTHING)
            said = event.detail.get("traceparent")
            return known if not isinstance(said, str) else known._replace(traceparent=said)
        told = attributes.verdict(event)
        verdict = {name: told[name] for key in _SHARED if (name := f"interlock.{key}") in told}
        said = event.detail.get("traceparent")
        more = verdict | attributes.asked_for(event) | attributes.arguments(event)
        found = Remembered(said if isinstance(said, str) else None, more)
        self._calls[event.call_id] = found
        self._calls.move_to_end(event.call_id)
        if len(self._calls) > MAX_CALLS:
            self._calls.popitem(last=False)
        return found
