"""Audit events as they are stored and asked for, and the role of the store that keeps them.

Pure: standard library only, no I/O. An event's body is the exact text that was
recorded (`store.encoding`); whatever else is known of it was read from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.model import Json


class Entry(NamedTuple):
    """One event: its exact text, which log it came from, its place there, and the link of that log's chain."""

    body: str
    writer: str | None = None
    seq: int | None = None
    chain: str | None = None
    said: list[Any] | None = None
    """What the text says, in the order of `store.event_text.COLUMNS`, where that is known without reading it."""


@dataclass(frozen=True, slots=True)
class Written:
    """What came of writing a batch."""

    kept: int
    """How many are stored now; those that were there before count."""
    poison: Mapping[int, str] = field(default_factory=dict[int, str])
    """Entries that no store can take, by their place in the batch, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which calls or events are meant: those that fit everything that is given.

    In agent, server and tool a `*` stands for any characters.
    """

    since: float | None = None
    until: float | None = None
    """Before this time; `since` itself is within."""
    agent: str | None = None
    server: str | None = None
    tool: str | None = None
    decision: str | None = None
    rule: str | None = None
    """The rule that decided."""
    arguments: tuple[tuple[str, str], ...] = ()
    """Path and value: `options.depth` and `3`. It fits as text, or as the number, true, false or null it spells."""
    without: tuple[tuple[str, int], ...] = ()
    """Writers and numbers: what one of these wrote past its number does not fit."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a page ended: the next one begins behind this event."""

    time: float
    event_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One tool call: what was decided, and how it ended if it has."""

    call_id: str | None
    event_id: str
    time: float
    agent: str | None
    authenticated: bool | None
    server: str | None
    transport: str | None
    revision: str | None
    session: str | None
    jsonrpc_id: str | None
    method: str | None
    tool: str | None
    arguments: Json
    arguments_hash: str | None
    decision: str | None
    reason: str | None
    rule: str | None
    rules: tuple[str, ...]
    shadow_rules: tuple[str, ...]
    policy_version: str | None
    redactions: tuple[Mapping[str, Any], ...]
    gate_ms: float | None
    upstream_ms: float | None
    total_ms: float | None
    result_digest: str | None
    result_size: int | None
    is_error: bool | None
    outcome: str | None
    completed_at: float | None

    @property
    def cursor(self) -> Cursor:
        """Where the page ends that has this call last."""
        return Cursor(self.time, self.event_id)


@dataclass(frozen=True, slots=True)
class ToolStats:
    """How often a tool was called, and what came of it. Times are those of the whole call."""

    server: str | None
    tool: str | None
    calls: int
    denied: int
    errors: int
    completed: int
    mean_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class DenialStats:
    """How often something was refused for one reason by one rule."""

    reason: str | None
    rule: str | None
    count: int


@dataclass(frozen=True, slots=True)
class SecretStats:
    """How often a detector found something in the calls of one tool; `only_in_record` where no rule asked for it."""

    server: str | None
    tool: str | None
    detector: str | None
    count: int
    only_in_record: int = 0


@dataclass(frozen=True, slots=True)
class DayStats:
    """The tool calls of one day (UTC, as 2026-01-31)."""

    day: str
    calls: int
    denied: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a store holds: how much, of when, by tool, by refusal and by finding, the most first; by day, in order."""

    events: int
    first: float | None
    last: float | None
    tools: Sequence[ToolStats]
    denials: Sequence[DenialStats]
    secrets: Sequence[SecretStats]
    days: Sequence[DayStats]


class EventStore(Protocol):
    """Keeps audit events, once each.

    Every method raises StoreUnavailableError where the store cannot be reached
    or does not answer in time, and nothing else that a caller should expect.
    """

    async def write(self, entries: Sequence[Entry]) -> Written:
        """Keep a batch, durably when this returns; entries that are there already are left as they are.

        An entry that is no event, or that the store does not take, is told as
        poison and keeps none of the others out.
        """
        ...

    async def prepare(self, now: float) -> None:
        """Make room for events to come. To be called at a start and then every day."""
        ...

    async def calls(self, where: Filter, limit: int = 100, before: Cursor | None = None) -> Sequence[CallRecord]:
        """Return tool calls that fit, newest first, from behind `before` on."""
        ...

    async def events(
        self, where: Filter, limit: int = 1000, after: Cursor | None = None
    ) -> Sequence[tuple[Cursor, Entry]]:
        """Return events of every kind that fit, oldest first, from behind `after` on."""
        ...

    async def find(self, event_or_call_id: str) -> Sequence[Entry]:
        """Return every event of a call, or the one event of that id, in the order in which they happened."""
        ...

    async def ids(self, prefix: str, limit: int = 2) -> Sequence[str]:
        """Return ids of calls, and of events outside calls, that begin so; no more than `limit`."""
        ...

    async def count(self, where: Filter) -> int:
        """Count the events that fit."""
        ...

    async def stats(self, where: Filter) -> Stats:
        """Sum up the events that fit."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...
