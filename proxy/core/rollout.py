"""Policy roll-out: signed steps, as stores keep them, and what replicas say. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

type Side = Literal["stable", "canary"]


@dataclass(frozen=True, slots=True)
class SignedStep:
    """A row of the roll-out. Nothing in it counts before its signature is verified."""

    number: int
    body: str
    key_id: str
    signature: str


@dataclass(frozen=True, slots=True)
class SideCounts:
    """What one version of a canary decided in a while."""

    calls: int = 0
    denials: int = 0
    errors: int = 0

    def __add__(self, other: SideCounts) -> SideCounts:
        return SideCounts(self.calls + other.calls, self.denials + other.denials, self.errors + other.errors)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a replica says: the step that it follows, its policy in force, and why a newer one is not."""

    replica: str
    number: int
    version: str
    problem: str | None = None
    seen_at: float = 0.0


class RolloutStore(Protocol):
    """Where steps are kept. Every method raises StoreUnavailableError where the store cannot be used.

    Times and slots are by the store's own clock: the clocks of replicas may differ.
    """

    async def newest(self, above: int, limit: int) -> Sequence[SignedStep]:
        """Return the steps with higher numbers than `above`, the newest first, at most `limit`."""
        ...

    async def step(self, number: int) -> SignedStep | None: ...

    async def add(self, step: SignedStep, bundles: Mapping[str, str]) -> bool:
        """Store a step and the policies that it names, both or none; return whether its number was still free."""
        ...

    async def bundle(self, digest: str) -> str | None:
        """Return the content of a policy. Nobody has checked it."""
        ...

    async def give_up(self, number: int, replica: str, reason: str) -> bool:
        """End the canary of a step; return whether nobody had done so before."""
        ...

    async def returned(self, number: int) -> str | None:
        """Return why the canary of a step was ended; None where it was not."""
        ...

    async def returns(self, since: int) -> Mapping[int, str]:
        """Return which canaries were ended, and why, from the step `since` on."""
        ...

    async def count(self, number: int, replica: str, counts: Mapping[Side, SideCounts]) -> None:
        """Add to what was decided."""
        ...

    async def counts(self, number: int, seconds: float) -> Mapping[Side, SideCounts]:
        """Return what all replicas decided in the last `seconds`."""
        ...

    async def report(self, state: ReplicaState) -> None:
        """Say which policy is in force at a replica."""
        ...

    async def replicas(self, seconds: float) -> Sequence[ReplicaState]:
        """Return what replicas said in the last `seconds`."""
        ...
