"""The stop button, as values: what is halted, by whom and why, and the store that all replicas share. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject


@dataclass(frozen=True, slots=True)
class Halt:
    """Nothing that fits may be called. A scope that is None narrows nothing; without any, everything is halted.

    With `tool`, only calls of that tool are; otherwise every message and plain request is. `cut` also ends what is
    under way.
    """

    halt_id: str
    reason: str
    operator: str
    created_at: float
    agent: str | None = None
    server: str | None = None
    tool: str | None = None
    cut: bool = False
    origin: str = "command"
    """How it came about: command, api, console, signal, file."""

    def data(self) -> JsonObject:
        """Return it as a JSON object."""
        return asdict(self)

    @property
    def scope(self) -> str:
        """What is halted, for people."""
        named = (("agent", self.agent), ("server", self.server), ("tool", self.tool))
        return ", ".join(f"{kind} {name}" for kind, name in named if name is not None) or "everything"


@dataclass(frozen=True, slots=True)
class HaltList:
    """All halts of one store, after so many changes. Of two lists of one store, the higher generation is newer."""

    store_id: str
    generation: int
    halts: tuple[Halt, ...] = ()


class HaltStore(Protocol):
    """Keeps halts, shared by every replica. Every method raises StoreUnavailableError."""

    async def read(self) -> HaltList:
        """Return all halts."""
        ...

    async def add(self, halts: Sequence[Halt]) -> HaltList:
        """Add halts, durably; return all. One that is there already is not added twice."""
        ...

    async def remove(self, halt_ids: Sequence[str]) -> HaltList:
        """Remove halts, durably; return those that are left."""
        ...
