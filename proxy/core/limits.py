"""Budgets over calls, as values: what a call costs, what a limit lets through, and the store that counts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from proxy.core.model import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

type LimitKind = Literal["count", "sum", "concurrency"]

# Sums are counted in whole units of 10^-18, so that 0.1 + 0.2 is 0.3, and no amount is ever rounded.
DECIMALS: Final = 18
MAX_DIGITS: Final = 30  # before the point: more than any honest amount has


@frozen()
class Charge:
    """What one call costs of one budget. `budget` names the limit and whose share of it; `amount` is in whole units.

    `blocks` is False where a call too many is only recorded: shadow mode, `action: report`, or a person approved it.
    """

    limit: str
    kind: LimitKind
    budget: str
    amount: int
    most: int
    seconds: float
    blocks: bool = True
    asks: bool = False
    """Whether people may let a call too many pass (`action: two_phase`)."""
    by_session: bool = False
    """Whether each session has a budget of its own; the session's name is not in `budget` yet."""


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A budget that a call would overdraw: what is used of it, and in how many seconds there is room for the call.

    `retry_after` is None where waiting does not help: the call alone is above the limit.
    """

    charge: Charge
    used: int
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What is used of one budget now."""

    budget: str
    used: int
    calls: int
    newest: float


class LimitStore(Protocol):
    """Counts calls, exactly: of all workers, and on Postgres of all replicas. Raises StoreUnavailableError."""

    async def reserve(self, call_id: str, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        """Charge a call to all of its budgets, or to none where one that blocks has no room for it.

        Returns what is exceeded. Nothing was charged where one of these blocks. The same call is charged once.
        """
        ...

    async def look(self, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        """Return what `reserve` would find exceeded, charging nothing."""
        ...

    async def give_back(self, call_id: str, charges: Sequence[Charge]) -> None:
        """Take back what a call was charged: it was not made."""
        ...

    async def release(self, call_id: str, charges: Sequence[Charge]) -> None:
        """Free the places that a call took of `concurrency` limits: it has ended."""
        ...

    async def usage(self, windows: Sequence[tuple[str, float]]) -> Sequence[Usage]:
        """Return what is used of every budget whose name begins so, in so many seconds; places for 0 seconds."""
        ...

    async def maintain(self) -> None:
        """Keep the places of calls under way, and delete what counts no more. Call it every few seconds."""
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...
