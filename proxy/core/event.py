"""Audit events as they are stored and queried. Pure.

An event's body is the exact text that was recorded (proxy/audit/encoder.py); everything else was read from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.core.model import Json

_CHAIN_START = b"interlock-chain-1\0"


class LogEntry(NamedTuple):
    """One event: its exact text, the writer of its log, its number there, and the link of that log's chain."""

    body: str
    writer: str | None = None
    seq: int | None = None
    chain: str | None = None
    columns: list[Any] | None = None  # as `event_columns.COLUMNS`, where they are known without parsing the text


@dataclass(frozen=True, slots=True)
class Head:
    """How far a writer has come: the number of its last event, and the link of that."""

    writer: str
    seq: int
    hash: str

    def after(self, links: Sequence[str]) -> Head:
        return Head(self.writer, self.seq + len(links), links[-1]) if links else self


def start(writer: str) -> Head:
    """Return the head of a chain without events."""
    return Head(writer, 0, sha256(_CHAIN_START + writer.encode()).hexdigest())


def link(before: str, seq: int, body: str) -> str:
    """Return the link of event number `seq`, whose text is `body`, after the link `before`: it holds all before it.

    The hash chain of a log, version 1, with || for concatenation of bytes:

        start       = SHA-256("interlock-chain-1" || 0x00 || writer)
        link of seq = SHA-256(link of seq-1 || seq as 8 bytes, big-endian || body)

    `writer` and `body` are UTF-8; the body is the event's text exactly as stored; the first event has seq 1, and the
    link before it is the start. Links are written in hex.
    """
    return sha256(bytes.fromhex(before) + seq.to_bytes(8) + body.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Written:
    kept: int  # how many are stored now; those that were there before count
    poison: Mapping[int, str] = field(default_factory=dict[int, str])  # what no store can take, by index, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which calls or events to return: those that match all that is given; `*` in a name stands for any characters."""

    since: float | None = None
    until: float | None = None  # before this time; `since` itself is within
    agent: str | None = None
    server: str | None = None
    tool: str | None = None
    decision: str | None = None
    rule: str | None = None  # the rule that decided
    # Path and value: `options.depth` and `3`. It matches as text, or as the number, true, false or null it is.
    arguments: tuple[tuple[str, str], ...] = ()
    # Claim and value, of those that events carry; `sub`, `iss` and `act.sub` are always there.
    claims: tuple[tuple[str, str], ...] = ()
    text: str | None = None  # in a name, the reason or the arguments, in upper or lower case
    without: tuple[tuple[str, int], ...] = ()  # writers and numbers: what one wrote past its number does not match


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
        return Cursor(self.time, self.event_id)


@dataclass(frozen=True, slots=True)
class ToolStats:
    """How often a tool was called, denied, failed and completed. Times are those of the whole call."""

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
    """How often a detector found something in the calls of one tool; `only_in_record`: masked in the record alone."""

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
