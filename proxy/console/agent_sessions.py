"""Agents and their sessions, from calls. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from proxy.console.call_rows import row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.audit.call_event import CallEvent
    from proxy.core.event import CallRecord

NO_NAME: Final = "(none)"


@dataclass(slots=True)
class AgentRow:
    """What an agent did in a time: calls over its slices, and when it was last seen."""

    name: str
    slices: dict[str, list[float]]
    last_seen: float = 0.0
    tools: set[str] = field(default_factory=set[str])

    @property
    def calls(self) -> int:
        return round(sum(sum(counts) for counts in self.slices.values()))

    @property
    def denied(self) -> int:
        return round(sum(self.slices["deny"]))


@dataclass(frozen=True, slots=True)
class SessionStep:
    """A call of a session as the list of calls shows it, and the seconds since the one before."""

    call: dict[str, Any]
    pause: float


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    server: str
    first: float
    last: float
    denied: int
    steps: tuple[SessionStep, ...]


def agents(events: Iterable[CallEvent], starts: Sequence[float]) -> list[AgentRow]:
    """Return who called, the one seen last first."""
    found: dict[str, AgentRow] = {}
    count, width = len(starts) - 1, starts[1] - starts[0]
    for event in events:
        at = math.floor((event.time - starts[0]) / width)
        if not event.is_call or not 0 <= at < count:
            continue
        name = event.agent or NO_NAME
        one = found.setdefault(name, AgentRow(name, {each: [0.0] * count for each in ("allow", "propose", "deny")}))
        one.slices[event.decision if event.decision in one.slices else "deny"][at] += event.weight
        one.last_seen = max(one.last_seen, event.time)
        one.tools.add(event.tool or NO_NAME)
    return sorted(found.values(), key=lambda one: (-one.last_seen, one.name))


def sessions(calls: Iterable[CallRecord]) -> list[Session]:
    """Return the sessions that calls belong to, the newest first, each with its calls in their order."""
    grouped: dict[tuple[str, str], list[CallRecord]] = {}
    for call in sorted(calls, key=lambda one: (one.time, one.event_id)):
        grouped.setdefault((call.session or "", call.server or ""), []).append(call)
    made = [_session(*key, group) for key, group in grouped.items()]
    return sorted(made, key=lambda one: one.last, reverse=True)


def _session(name: str, server: str, calls: Sequence[CallRecord]) -> Session:
    pauses = [0.0, *(later.time - earlier.time for earlier, later in pairwise(calls))]
    return Session(
        id=name,
        server=server,
        first=calls[0].time,
        last=calls[-1].time,
        denied=sum(call.decision == "deny" for call in calls),
        steps=tuple(SessionStep(row(call), pause) for call, pause in zip(calls, pauses, strict=True)),
    )
