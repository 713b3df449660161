"""Verifying an audit trail: every chain, against what was signed of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.audit.trails import START
from proxy.audit.walk import Problem, Signed, Walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from proxy.audit.hash_chain import Head
    from proxy.audit.trails import Trail


@dataclass(frozen=True, slots=True)
class WriterReport:
    """What was found of one writer. `signed`: whether any checkpoint speaks of it."""

    writer: str
    checked: int
    set_aside: int
    proven: int
    signed: bool
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was found of a trail."""

    writers: list[WriterReport] = field(default_factory=list[WriterReport])
    loose: Problem | None = None
    """An event that belongs to no chain."""

    @property
    def problems(self) -> list[Problem]:
        """What is wrong, the first of each writer."""
        found = [report.problem for report in self.writers if report.problem is not None]
        return found + ([self.loose] if self.loose else [])

    @property
    def unsigned(self) -> list[str]:
        """The writers of which nothing was signed."""
        return [report.writer for report in self.writers if not report.signed]

    @property
    def checked(self) -> int:
        """How many events were found as they were written."""
        return sum(report.checked for report in self.writers)


def expected(signed: Mapping[str, Signed]) -> int:
    """Return about how many events there should be."""
    return sum(max(0, said.last - said.pruned) for said in signed.values())


async def verify(trail: Trail, signed: Mapping[str, Signed], told: Callable[[int], None] = lambda _: None) -> Report:
    """Verify every chain of a trail, and every chain that was signed; `told` hears how many events were read."""
    heads = await trail.heads()
    report = Report(loose=_loose(await trail.unchained()))
    for writer in sorted({*heads, *signed}):
        report.writers.append(await _verify_writer(trail, writer, signed.get(writer), heads.get(writer), told))
    return report


async def _verify_writer(
    trail: Trail, writer: str, signed: Signed | None, head: Head | None, told: Callable[[int], None]
) -> WriterReport:
    walk = Walk(writer, signed or Signed(), head)
    after = START
    problem: Problem | None = None
    while problem is None and (events := await trail.page(writer, after)):
        problem = next(filter(None, map(walk.take, events)), None)
        after = events[-1].place
        told(len(events))
    problem = problem or walk.end()
    return WriterReport(writer, walk.checked, walk.set_aside, walk.proven, signed is not None, problem)


def _loose(event_id: str | None) -> Problem | None:
    if event_id is None:
        return None
    return Problem("", None, event_id, "unchained", "it belongs to no writer's chain, so nothing proves it")
