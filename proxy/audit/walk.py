"""Walking along a chain of events, and finding the first that is not what it was. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.audit.hash_chain import Head, link, start

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.audit.chained import Chained
    from proxy.audit.checkpoints import Checkpoint


@dataclass(frozen=True, slots=True)
class Problem:
    """The first event of a writer that is not what it was. `what` is stable (docs/audit.md)."""

    writer: str
    seq: int | None
    event_id: str | None
    what: str
    detail: str


@dataclass(slots=True)
class Signed:
    """What checkpoints say of one writer: links by number, and up to where events may be gone."""

    links: dict[int, str] = field(default_factory=dict[int, str])
    rejected: dict[int, str] = field(default_factory=dict[int, str])
    pruned: int = 0
    conflict: int | None = None
    """The number of an event for which two links were signed."""

    @property
    def last(self) -> int:
        """The furthest event that anything was signed of."""
        return max(self.links, default=0)

    def add(self, checkpoint: Checkpoint) -> None:
        """Take in what a checkpoint says."""
        if self.links.setdefault(checkpoint.seq, checkpoint.hash) != checkpoint.hash:
            self.conflict = min(checkpoint.seq, self.conflict or checkpoint.seq)
        if checkpoint.kind == "pruned":
            self.pruned = max(self.pruned, checkpoint.seq)
        elif checkpoint.kind == "rejected":
            self.rejected[checkpoint.seq] = checkpoint.hash


def by_writer(checkpoints: Iterable[Checkpoint]) -> dict[str, Signed]:
    """Sort what checkpoints say by writer."""
    found: dict[str, Signed] = {}
    for checkpoint in checkpoints:
        found.setdefault(checkpoint.writer, Signed()).add(checkpoint)
    return found


class Walk:
    """One writer's chain, taken event by event in the order of their numbers.

    `head` is where the writer's own log says that it is, where that is known.
    """

    def __init__(self, writer: str, signed: Signed, head: Head | None = None) -> None:
        self.writer = writer
        self.checked = 0
        self.set_aside = 0
        self.proven = 0
        """The last event that a signature speaks for."""
        self._signed = signed
        self._head = head
        self._next = 1
        self._tip: str | None = start(writer).hash

    def take(self, event: Chained) -> Problem | None:
        """Go one event further; tell what is wrong with it, if anything is."""
        seq, body, chain = event.entry.seq, event.entry.body, event.entry.chain
        if seq is None or chain is None:
            return self._problem(seq, event.event_id, "unchained", "it has no place in the chain")
        self._skip(seq)
        if seq < self._next:
            return self._problem(seq, event.event_id, "repeated", "another event has the same number")
        if seq > self._next:
            return self._missing(seq - 1)
        if event.wrong_column is not None:
            detail = f"column {event.wrong_column} says another thing than the event's text"
            return self._problem(seq, event.event_id, "altered", detail)
        if self._tip is not None and link(self._tip, seq, body) != chain:
            detail = "its link does not follow from its text and the event before it"
            return self._problem(seq, event.event_id, "altered", detail)
        if self._signed.links.get(seq, chain) != chain:
            return self._rewritten(seq, event.event_id)
        self._step(chain)
        self.checked += 1
        return None

    def end(self) -> Problem | None:
        """Return whether something is missing behind the last event."""
        last = max(self._signed.last, self._head.seq if self._head else 0)
        self._skip(last + 1)
        if self._next <= last:
            return self._missing(last)
        if self._head and self._head.seq == self._next - 1 and self._tip not in (None, self._head.hash):
            return self._problem(self._head.seq, None, "rewritten", "the log itself has another link for it")
        if self._signed.conflict is not None:
            return self._problem(self._signed.conflict, None, "forked", "two different links were signed for it")
        return None

    def _skip(self, seq: int) -> None:
        """Go over what is missing before `seq` and may be: what was set aside, and what was pruned."""
        while self._next < seq:
            if self._next in self._signed.rejected:
                self.set_aside += 1
                self._step(self._signed.rejected[self._next])
            elif self._next <= self._signed.pruned:
                self._next = min(seq, self._signed.pruned + 1)
                self._tip = self._signed.links.get(self._next - 1)
                self.proven = max(self.proven, self._next - 1 if self._tip else 0)
            else:
                return

    def _step(self, chain: str) -> None:
        if self._next in self._signed.links:
            self.proven = self._next
        self._tip = chain
        self._next += 1

    def _missing(self, until: int) -> Problem:
        detail = f"events {self._next} to {until} are missing" if until > self._next else "it is missing"
        return self._problem(self._next, None, "missing", detail)

    def _rewritten(self, seq: int, event_id: str) -> Problem:
        detail = f"a signed checkpoint has another link for it: it or an event from {self.proven + 1} on was rewritten"
        return self._problem(seq, event_id, "rewritten", detail)

    def _problem(self, seq: int | None, event_id: str | None, what: str, detail: str) -> Problem:
        return Problem(self.writer, seq, event_id, what, detail)
