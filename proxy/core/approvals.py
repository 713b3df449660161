"""Who may decide on proposals, and what a decision may cover beside the one call. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import Json


class Role(StrEnum):
    """What an operator may do. Each role may do what the ones before it may."""

    VIEWER = "viewer"
    APPROVER = "approver"
    ADMIN = "admin"

    def includes(self, needed: Role) -> bool:
        """Return whether an operator of this role may do what `needed` may."""
        order = tuple(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Operator:
    """A person with an operator's token. `agents` are those that run on this person's behalf: names, or globs."""

    name: str
    role: Role = Role.APPROVER
    agents: frozenset[str] = frozenset()

    def runs(self, agent: str) -> bool:
        """Return whether an agent runs on this person's behalf."""
        return agent in self.agents or any(fnmatchcase(agent, pattern) for pattern in self.agents)


@dataclass(frozen=True, slots=True)
class GivenApproval:
    """One operator's approval of a proposal."""

    operator: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class NextCalls:
    """What an operator approves beside the proposal: so many calls like it, in so many seconds.

    Arguments named in `vary` may have any value of the same JSON type; all others must be equal.
    """

    calls: int
    seconds: float
    vary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingApproval:
    """An approval of the next calls like one that was approved. `arguments` are those approved, masked."""

    standing_id: str
    proposal_id: str
    server: str
    tool: str
    principal: str
    rule: str
    vary: tuple[str, ...]
    like_key: str
    arguments: Json
    operator: str
    reason: str
    created_at: float
    expires_at: float
    granted: int
    remaining: int
    revoked_by: str | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """The last call of a tool that people approved; `arguments` are masked."""

    server: str
    tool: str
    proposal_id: str
    principal: str
    arguments: Json
    operator: str
    at: float


class StandingStore(Protocol):
    """Keeps standing approvals, shared by every replica. Every method raises StoreUnavailableError."""

    async def add(self, standing: StandingApproval) -> None:
        """Store a standing approval."""
        ...

    async def newest(self, limit: int = 100) -> Sequence[StandingApproval]:
        """Return the newest ones, used up, expired and revoked ones too."""
        ...

    async def find(self, standing_id: str) -> StandingApproval | None:
        """Return one by its id."""
        ...

    async def live(self, server: str, tool: str, principal: str, rule: str, now: float) -> Sequence[StandingApproval]:
        """Return those that could let a call of this kind through, the one that ends first first."""
        ...

    async def use(self, standing_id: str, call_id: str, now: float) -> StandingApproval | None:
        """Count a call; None where it has none left, has expired or was revoked. Exact among all replicas."""
        ...

    async def revoke(self, standing_id: str, operator: str, now: float) -> StandingApproval | None:
        """Revoke one; None where it is not there or revoked already."""
        ...

    async def sweep(self, before: float) -> int:
        """Delete those that expired before then; return how many."""
        ...
