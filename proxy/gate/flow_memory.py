"""What one worker remembers for flows: the histories of agents, as the store has them, and what agents sent."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxy.flows.history import AgentHistory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.flows.fingerprint import Fingerprinter, Kept

MAX_AGENTS: Final = 1000
MAX_RUNS: Final = 1 << 18  # fingerprints of all agents: about 32 MB
OWN_BYTES: Final = 1 << 13


@dataclass(slots=True)
class AgentMemory:
    """What is known of one agent, and the version of the store that says so; the ends of what it sent expire."""

    history: AgentHistory
    version: object | None = None
    tails: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    tails_expire: float = 0.0


class Histories:
    """What is known of the agents that called last. What is dropped is read again from the store."""

    def __init__(self, key_id: int) -> None:
        self._key_id = key_id
        self._known: OrderedDict[str, AgentMemory] = OrderedDict()

    def of(self, agent: str) -> AgentMemory:
        """Return what is known of an agent: nothing, where it is new."""
        known = self._known.get(agent)
        if known is None:
            known = self._known[agent] = AgentMemory(AgentHistory(self._key_id))
        self._known.move_to_end(agent)
        return known

    def trim(self) -> None:
        """Drop the histories of those that called longest ago, past the bounds."""
        total = sum(known.history.runs for known in self._known.values())
        while len(self._known) > 1 and (len(self._known) > MAX_AGENTS or total > MAX_RUNS):
            _, oldest = self._known.popitem(last=False)
            total -= oldest.history.runs


class OwnWords:
    """What agents sent before they had read anything labelled: the same words in a result are not news to them.

    Normalised, in memory only, and only the last of it.
    """

    def __init__(self) -> None:
        self._said: OrderedDict[str, bytes] = OrderedDict()

    def add(self, agent: str, plain: bytes) -> None:
        """Remember what an agent sent."""
        self._said[agent] = (self._said.get(agent, b"") + b"\0" + plain)[-OWN_BYTES:]
        self._said.move_to_end(agent)
        if len(self._said) > MAX_AGENTS:
            self._said.popitem(last=False)

    def without(self, agent: str, kept: Kept, printer: Fingerprinter) -> Kept:
        """Return what is kept of a result, without what the agent had said itself."""
        said = self._said.get(agent)
        if not said:
            return kept
        own = set(printer.every([said]))
        return kept._replace(
            runs=kept.runs - own,
            values=frozenset(pair for pair in kept.values if pair[0] not in own),
        )
