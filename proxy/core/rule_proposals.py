"""Rules that agents propose, as values, and the store that all replicas share. Pure.

A proposal is text that a person looks at. Nothing here, and nothing that reads it, puts a rule in force.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject

HOST: Final = "interlock.internal"
"""Where agents propose rules. The proxy answers for it; it is never resolved or dialled."""
PORTS: Final = frozenset({80, 443})
TOOL: Final = "policy.propose"


class RuleState(StrEnum):
    """How a rule proposal stands."""

    WAITING = "waiting"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleProposal:
    """A rule as a policy file of its own, who proposed it and why, and what a person decided."""

    proposal_id: str
    agent: str
    rule_id: str
    text: str
    why: str
    digest: str
    call_id: str
    policy_version: str
    created_at: float
    state: RuleState = RuleState.WAITING
    operator: str | None = None
    reason: str | None = None
    decided_at: float | None = None

    def data(self) -> JsonObject:
        """Return it as a JSON object."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Room:
    """How many proposals there may be: waiting ones of an agent and of all, and new ones of an agent in an hour."""

    of_agent: int = 20
    of_all: int = 200
    an_hour: int = 10


class RuleProposalStore(Protocol):
    """Keeps rule proposals. Every method raises StoreUnavailableError."""

    async def add(self, proposal: RuleProposal, room: Room) -> RuleProposal | None:
        """Store a proposal; return it, or the agent's own one of the same text that waits; None where there is no room.

        What is older than 30 days goes.
        """
        ...

    async def find(self, proposal_id: str) -> RuleProposal | None:
        """Return one by its id."""
        ...

    async def newest(self, states: Sequence[RuleState], limit: int) -> Sequence[RuleProposal]:
        """Return those in any of the states, the newest first; in any state where none is given."""
        ...

    async def decide(
        self, proposal_id: str, state: RuleState, operator: str, reason: str, now: float
    ) -> RuleProposal | None:
        """Decide on one that waits; None where it does not."""
        ...
