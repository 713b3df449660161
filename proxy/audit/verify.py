"""Verifies an audit trail: every chain, against what was signed of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.audit.chain_reader import START, ChainedEvent, Chains
from proxy.audit.checkpoints import Signed
from proxy.audit.event import Head, link, start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """The first event of a writer that is not what it was. `what` is stable (docs/audit.md)."""

    writer: str
    seq: int | None
    event_id: str | None
    what: str
    detail: str


@dataclass(frozen=True, slots=True)
class WriterReport:
    """The result for one writer. `signed`: whether any checkpoint covers it."""

    writer: str
    checked: int
    set_aside: int
    proven: int
    signed: bool
    problem: ChainProblem | None = None


@dataclass(frozen=True, slots=True)
class Report:
    writers: list[WriterReport] = field(default_factory=list[WriterReport])
    loose: ChainProblem | None = None  # an event that belongs to no chain

    @property
    def problems(self) -> list[ChainProblem]:
        found = [report.problem for report in self.writers if report.problem is not None]
        return found + ([self.loose] if self.loose else [])

    @property
    def unsigned(self) -> list[str]:
        return [report.writer for report in self.writers if not report.signed]

    @property
    def checked(self) -> int:
        """How many events are as they were written."""
        return sum(report.checked for report in self.writers)


def expected(signed: Mapping[str, Signed]) -> int:
    """Return about how many events there should be."""
    return sum(max(0, said.last - said.pruned) for said in signed.values())


async def verify(
    chains: Chains, signed: Mapping[str, Signed], progress: Callable[[int], None] = lambda _: None
) -> Report:
    """Verify every chain there is, and every chain that was signed; `progress` is called with counts of events."""
    heads = await chains.heads()
    report = Report()
    if (loose := await chains.unchained()) is not None:
        what = "unchained", "it belongs to no writer's chain, so nothing proves it"
        report = Report(loose=ChainProblem("", None, loose, *what))
    for writer in sorted({*heads, *signed}):  # signed ones too: a chain may have been deleted as a whole
        report.writers.append(await _verify_writer(chains, writer, signed.get(writer), heads.get(writer), progress))
    return report


async def _verify_writer(
    chains: Chains, writer: str, signed: Signed | None, head: Head | None, progress: Callable[[int], None]
) -> WriterReport:
    walk = ChainVerifier(writer, signed or Signed(), head)
    after = START
    problem: ChainProblem | None = None
    while problem is None and (events := await chains.page(writer, after)):
        problem = next(filter(None, map(walk.check, events)), None)
        after = events[-1].position
        progress(len(events))
    problem = problem or walk.end()
    return WriterReport(writer, walk.checked, walk.set_aside, walk.proven, signed is not None, problem)


class ChainVerifier:
    """One writer's chain, taken event by event in the order of their numbers.

    `head` is where the writer's own log says that it is, where that is known.
    """

    def __init__(self, writer: str, signed: Signed, head: Head | None = None) -> None:
        self.writer = writer
        self.checked = 0
        self.set_aside = 0
        self.proven = 0  # the last event that a signature covers
        self._signed = signed
        self._head = head
        self._next = 1
        self._tip: str | None = start(writer).hash

    def check(self, event: ChainedEvent) -> ChainProblem | None:
        """Check the next event; return what is wrong with it, if anything is."""
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
            detail = (
                f"a signed checkpoint has another link for it: it or an event from {self.proven + 1} on was rewritten"
            )
            return self._problem(seq, event.event_id, "rewritten", detail)
        self._step(chain)
        self.checked += 1
        return None

    def end(self) -> ChainProblem | None:
        """Return what is wrong at the end: events that were signed, or that the log has, and that are not there."""
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
        """Pass over what may be missing before `seq`: what was signed as rejected, and as pruned."""
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

    def _missing(self, until: int) -> ChainProblem:
        detail = f"events {self._next} to {until} are missing" if until > self._next else "it is missing"
        return self._problem(self._next, None, "missing", detail)

    def _problem(self, seq: int | None, event_id: str | None, what: str, detail: str) -> ChainProblem:
        return ChainProblem(self.writer, seq, event_id, what, detail)
