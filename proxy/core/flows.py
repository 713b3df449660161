"""What is remembered of labelled results, and of calls that a rule asks about later. Pure values.

A mark says that a result with these labels reached an agent. It holds keyed fingerprints of the result, never its
content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from proxy.core.model import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject


@frozen(kw_only=True)
class Mark:
    """One labelled result. `number` counts the marks of an agent, from 1; the store assigns it."""

    agent: str
    call_id: str
    server: str
    tool: str | None
    labels: tuple[str, ...]
    at: float
    expires_at: float
    session: str | None = None
    trace: str | None = None
    shingles: bytes = b""
    """Fingerprints of runs of text, eight bytes each."""
    values: bytes = b""
    """Fingerprints of single values, eight bytes each."""
    complete: bool = True
    """False where the fingerprints do not cover all of the result."""
    number: int = 0

    def source(self) -> JsonObject:
        """Return where the data came from, as a denial and the command line show it."""
        named = {"audit_id": self.call_id, "server": self.server, "tool": self.tool}
        return {**named, "labels": list(self.labels), "at": self.at}


@frozen()
class Cleared:
    """A person has cleared the marks of an agent up to `number`; of one label, or of all."""

    number: int
    label: str | None = None


type FlowEntry = Mark | Cleared


@dataclass(frozen=True, slots=True)
class FlowState:
    """What the store knows of an agent since a number: new entries, and the ends of what it sent lately, sealed."""

    entries: Sequence[FlowEntry]
    window: bytes | None


class FlowStore(Protocol):
    """Keeps marks. Every method raises StoreUnavailableError where that cannot be done."""

    async def add(self, marks: Sequence[Mark]) -> None:
        """Return once the marks are there for every worker and replica."""

    async def read(self, agent: str, after: int, now: float) -> FlowState:
        """Return the live entries of an agent whose number is above `after`, in their order, and its window."""

    def version(self, *, windows: bool) -> object | None:
        """Return what changes whenever marks were written, or, if asked for, somebody else wrote a window.

        None where that cannot be told at once.
        """

    async def put_window(self, agent: str, window: bytes, expires_at: float) -> None:
        """Store the ends of what an agent sent."""

    async def clear(self, agent: str, label: str | None, by: str, now: float) -> int:
        """End the marks of an agent, or those of one label; return how many there were."""

    async def sweep(self, now: float) -> int:
        """Delete what has expired; return how many marks."""


class History(Protocol):
    """What an agent has read and done, as far as rules ask about it."""

    def latest(self, labels: frozenset[str], within: float) -> Mark | None:
        """Return the newest mark with one of `labels` that is not older than `within` seconds."""
