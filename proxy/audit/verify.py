"""Verifies an audit trail: every chain, against what was signed of it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from proxy.audit.chain_reader import START, ChainedEvent, Chains, behind
from proxy.audit.checkpoints import Signed
from proxy.audit.writers import KEY, REGISTRY
from proxy.core.event import Head, LogEntry, link, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from proxy.audit.range_check import Stretch, StretchResult
    from proxy.audit.writers import Registered


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
    """The result for one writer. `signed`: whether any checkpoint covers it. `after`: events up to there were not read.

    `proven_link`: the link of the last event that a signature covers.
    """

    writer: str
    checked: int
    set_aside: int
    proven: int
    signed: bool
    problem: ChainProblem | None = None
    after: int = 0
    proven_link: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    writers: list[WriterReport] = field(default_factory=list[WriterReport])
    loose: ChainProblem | None = None  # an event that belongs to no chain
    registry: list[ChainProblem] = field(default_factory=list[ChainProblem])

    @property
    def problems(self) -> list[ChainProblem]:
        found = [report.problem for report in self.writers if report.problem is not None]
        return found + ([self.loose] if self.loose else []) + self.registry

    @property
    def unsigned(self) -> list[str]:
        return [report.writer for report in self.writers if not report.signed]

    @property
    def checked(self) -> int:
        """How many events are as they were written."""
        return sum(report.checked for report in self.writers)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a trail is verified against: what was signed, by chain, and the registry of the store, where it has one.

    `strangers`: writers of which the store has checkpoints that a key signed which is not trusted.
    """

    signed: Mapping[str, Signed]
    registry: Sequence[Registered] | None = None
    strangers: frozenset[str] = frozenset()

    @property
    def writers(self) -> dict[str, Signed]:
        return {name: said for name, said in self.signed.items() if not name.startswith(REGISTRY)}


class Stretches(Protocol):
    """Checks stretches of chains at full speed (`stretch_pool.py`)."""

    def check(self, stretches: Sequence[Stretch]) -> AsyncIterator[tuple[Stretch, StretchResult]]:
        """Yield the result of each stretch, in their order."""

    def cut(self, writer: str, first: int, last: int, tip: str, links: Mapping[int, str]) -> Sequence[Stretch]:
        """Cut the events `first` to `last` of a writer into stretches."""


def expected(signed: Mapping[str, Signed]) -> int:
    """Return about how many events there should be."""
    writers = Evidence(signed).writers
    return sum(max(0, said.last - said.pruned) for said in writers.values())


async def verify(
    chains: Chains,
    evidence: Evidence,
    progress: Callable[[int], None] = lambda _: None,
    *,
    anchors: Mapping[str, Head] | None = None,
    fast: Stretches | None = None,
) -> Report:
    """Verify every chain there is, and every chain that was signed; `progress` is called with counts of events.

    `anchors`: what a writer wrote up to there is not read. `fast` reads what is in the store.
    """
    heads = await chains.heads()
    signed = evidence.writers
    loose = None
    if (found := await chains.unchained()) is not None:
        loose = ChainProblem("", None, found, "unchained", "it belongs to no writer's chain, so nothing proves it")
    report = Report(loose=loose, registry=await _verify_registry(chains, evidence, heads))
    for writer in sorted({*heads, *signed, *evidence.strangers}):  # a chain may have been deleted as a whole
        walk = ChainVerifier(writer, signed.get(writer, Signed()), heads.get(writer), (anchors or {}).get(writer))
        problem = await _walk(chains, walk, progress, fast) or walk.end()
        report.writers.append(walk.report(problem, signed=writer in signed))
    return report


async def _walk(
    chains: Chains, walk: ChainVerifier, progress: Callable[[int], None], fast: Stretches | None
) -> ChainProblem | None:
    """Take a writer's events to the end; return the first problem."""
    walker = _Walker(chains, walk, progress)
    stored = await chains.stored(walk.writer) if fast is not None else 0
    if fast is not None and stored > walk.may_lack:
        # What may be missing in part, since it was pruned, is taken with care.
        if (problem := await walker.until(walk.may_lack)) is not None:
            return problem
        walk.catch_up(walk.may_lack)
        links = walk.links
        stretches = fast.cut(walk.writer, walk.next, stored, walk.tip, links) if walk.tip is not None else ()
        async with contextlib.aclosing(fast.check(stretches)) as results:  # type: ignore[type-var]
            async for stretch, result in results:
                if result.good and (walk.next, walk.tip) == (stretch.first, result.began):
                    walk.jump(stretch.last, result.ended)
                    progress(stretch.last - stretch.first + 1)
                elif (problem := await walker.until(stretch.last)) is not None:
                    return problem
    return await walker.until(None)


class _Walker:
    """Takes a chain event by event, page by page."""

    def __init__(self, chains: Chains, walk: ChainVerifier, progress: Callable[[int], None]) -> None:
        self._chains = chains
        self._walk = walk
        self._progress = progress
        self._first = True

    async def until(self, last: int | None) -> ChainProblem | None:
        """Take the events up to number `last`, or all; return the first problem."""
        walk = self._walk
        after = START if self._first and not walk.after else behind(walk.next - 1)
        self._first = False
        while events := await self._chains.page(walk.writer, after):
            for event in events:
                if last is not None and (event.entry.seq or 0) > last:
                    return None
                if (problem := walk.check(event)) is not None:
                    return problem
            after = events[-1].position
            self._progress(len(events))
        return None


async def _verify_registry(chains: Chains, evidence: Evidence, heads: Mapping[str, Head | None]) -> list[ChainProblem]:
    """Return what is wrong with the registry of writers, and with writers that are not as it says."""
    if evidence.registry is None:
        return []
    rows = evidence.registry
    name = f"{REGISTRY}{rows[0].said('registry')}" if rows else ""
    problems = [
        ChainProblem(other, None, None, "missing", "this registry of writers was signed, and is not in the store")
        for other in evidence.signed
        if other.startswith(REGISTRY) and other != name
    ]
    if not rows:
        return problems
    walk = ChainVerifier(name, evidence.signed.get(name, Signed()))
    links = (ChainedEvent(LogEntry(row.body, name, row.number, row.chain), row.name, _wrong_name(row)) for row in rows)
    problem = next(filter(None, map(walk.check, links)), None) or walk.end()
    known = {row.name for row in rows}
    there = {*heads, *evidence.writers, *evidence.strangers}
    absent = "it is registered, and there is nothing of it: neither an event nor a checkpoint"
    strange = "its events are in the store, and it is not registered there"
    return [
        *problems,
        *([problem] if problem else []),
        *(ChainProblem(one, None, None, "missing", absent) for one in sorted(known - there) if not one.startswith(KEY)),
        *[
            ChainProblem(one, None, None, "unregistered", strange)
            for one in sorted(heads.keys() - known)
            if await chains.stored(one)
        ],
    ]


def _wrong_name(row: Registered) -> str | None:
    return None if row.said("name") == row.name else "writer"


class ChainVerifier:
    """One writer's chain, taken event by event in the order of their numbers.

    `head` is where the writer's own log says that it is, where that is known. `begin`: what comes up to there is not
    read; it was signed.
    """

    def __init__(self, writer: str, signed: Signed, head: Head | None = None, begin: Head | None = None) -> None:
        self.writer = writer
        self.checked = 0
        self.set_aside = 0
        self.after = begin.seq if begin else 0
        self.proven = self.after  # the last event that a signature covers
        self._signed = signed
        self._head = head
        self._next = self.after + 1
        self._tip: str | None = begin.hash if begin else start(writer).hash

    @property
    def next(self) -> int:
        return self._next

    @property
    def tip(self) -> str | None:
        """The link of the event before the next; None where it was pruned, and not signed."""
        return self._tip

    @property
    def links(self) -> Mapping[int, str]:
        return self._signed.links

    @property
    def may_lack(self) -> int:
        """Events up to this number may be missing, since they were pruned or are not read."""
        return max(self._signed.pruned, self.after)

    def catch_up(self, seq: int) -> None:
        """Pass over what may be missing up to number `seq`."""
        self._skip(seq + 1)

    def jump(self, last: int, tip: str) -> None:
        """Take events up to number `last`, which were checked elsewhere."""
        self.checked += last - self._next + 1
        self.proven = max((seq for seq in self._signed.links if self._next <= seq <= last), default=self.proven)
        self._next, self._tip = last + 1, tip

    def report(self, problem: ChainProblem | None, *, signed: bool) -> WriterReport:
        link = self._signed.links.get(self.proven)
        return WriterReport(self.writer, self.checked, self.set_aside, self.proven, signed, problem, self.after, link)

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
