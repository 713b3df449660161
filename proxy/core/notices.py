"""What people are told, and the Protocol of the outbox that it waits in. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject
    from proxy.core.proposals import Proposal, State


@dataclass(frozen=True, slots=True)
class DueNotice:
    """A notice that this process has claimed, and how often it was tried before."""

    target: str
    proposal_id: str
    state: State
    body: JsonObject
    attempts: int


class Outbox(Protocol):
    """Notices, one for each target, proposal and state; shared by every replica. Raises StoreUnavailableError."""

    async def untold(self, target: str, now: float, limit: int = 50) -> Sequence[tuple[Proposal, State]]:
        """Return proposals whose state a target was not told: those that wait, and ends of what it was told waits."""
        ...

    async def add(self, target: str, proposal_id: str, state: State, body: JsonObject, now: float) -> bool:
        """Put a notice in; return False where it is there already, whoever put it."""
        ...

    async def claim(self, now: float, until: float) -> DueNotice | None:
        """Claim a notice that is due: until then no other process sends it. None where nothing is due."""
        ...

    async def sent(self, notice: DueNotice, now: float) -> None:
        """Note that the target has taken it: nobody sends it again."""
        ...

    async def failed(self, notice: DueNotice, problem: str, due_at: float) -> None:
        """Note why a try failed, and when the next one is due."""
        ...

    async def give_up(self, notice: DueNotice, problem: str, now: float) -> None:
        """Note that nobody tries again."""
        ...

    async def sweep(self, before: float) -> None:
        """Delete what was put in before then, whatever became of it."""
        ...
