"""What one worker remembers for flows: the histories of agents, as the store has them, and what agents sent."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from proxy.flows.history import AgentHistory

if TYPE_CHECKING:
    from proxy.flows.fingerprint import Fingerprinter, Kept

MAX_AGENTS: Final = 1000
MAX_RUNS: Final = 1 << 18  # fingerprints of all agents: about 32 MB
OWN_BYTES: Final = 1 << 13


class Histories:
    """The histories of the agents that called last. What is dropped is read again from the store."""

    def __init__(self, key_id: int) -> None:
        self._key_id = key_id
        self._known: OrderedDict[str, AgentHistory] = OrderedDict()

    def of(self, agent: str) -> AgentHistory:
        """Return the history of an agent, an empty one where none is known."""
        history = self._known.get(agent)
        if history is None:
            history = self._known[agent] = AgentHistory(self._key_id)
        self._known.move_to_end(agent)
        return history

    def trim(self) -> None:
        """Drop the histories of those that called longest ago, past the bounds."""
        total = sum(history.runs for history in self._known.values())
        while len(self._known) > 1 and (len(self._known) > MAX_AGENTS or total > MAX_RUNS):
            _, oldest = self._known.popitem(last=False)
            total -= oldest.runs


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
