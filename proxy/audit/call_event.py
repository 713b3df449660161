"""An event of a call as figures over time need it. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class CallEvent(NamedTuple):
    """What was decided of a call, or how it ended. It stands for `weight` events like it, itself included."""

    time: float
    kind: str
    method: str | None
    decision: str | None
    reason: str | None
    rule: str | None
    server: str | None
    tool: str | None
    agent: str | None
    total_ms: float | None
    is_error: bool | None
    detectors: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    shadow_rules: tuple[str, ...] = ()
    weight: float = 1.0

    @property
    def is_call(self) -> bool:
        return self.kind == "decided" and self.method == "tools/call"


def call_event(row: Sequence[Any], weight: float = 1.0) -> CallEvent:
    """Return a row of `sample_events`."""
    redactions, rules, shadow_rules = row[11:14]
    # Most events have none of these, and a page reads tens of thousands.
    lists = (
        tuple(_detectors(redactions)) if redactions else (),
        _texts(rules) if rules else (),
        _texts(shadow_rules) if shadow_rules else (),
    )
    return CallEvent._make((*row[:11], *lists, weight))


def _detectors(text: str) -> list[str]:
    found = json.loads(text)
    return [str(one.get("detector")) for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _texts(text: str) -> tuple[str, ...]:
    found = json.loads(text)
    return tuple(str(one) for one in found) if isinstance(found, list) else ()
