"""A verification of the audit trail that goes on while nobody waits for it: one at a time, with its progress."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from proxy.audit.signed_checkpoints import read_evidence
from proxy.audit.verify import Report, expected, verify
from proxy.errors import AuditUnavailableError, ConfigError, StoreUnavailableError

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.console.trail import Trail

log = structlog.get_logger("interlock.console")


@dataclass(slots=True)
class Progress:
    """How far a verification has come; `report` once it is done, `problem` where it could not be."""

    operator: str
    started: float
    done: int = 0
    expected: int = 0
    ended: float | None = None
    report: Report | None = None
    broken: tuple[str, ...] = ()
    problem: str = ""

    @property
    def share(self) -> float:
        """How much of it is done, at most 1."""
        return min(1.0, self.done / self.expected) if self.expected else 0.0

    @property
    def verdict(self) -> str:
        """good, unproven, bad, failed, or running."""
        if self.problem:
            return "failed"
        if self.report is None:
            return "running"
        if self.report.problems or self.broken:
            return "bad"
        return "unproven" if self.report.unsigned else "good"


class Verification:
    """Verifies the trail in a task of its own."""

    def __init__(self, settings: Settings, trail: Trail) -> None:
        self._settings = settings
        self._trail = trail
        self._task: asyncio.Task[None] | None = None
        self.progress: Progress | None = None

    def begin(self, operator: str) -> None:
        """Begin to verify, unless somebody has begun already."""
        if self._task is None or self._task.done():
            self.progress = Progress(operator, time.time())
            self._task = asyncio.create_task(self._run(self.progress))

    async def wait(self) -> None:
        if self._task is not None:
            await self._task

    async def _run(self, progress: Progress) -> None:
        def advance(number: int) -> None:
            progress.done += number

        try:
            async with self._trail.open() as reader:
                found = await read_evidence(self._settings, reader.store)
                progress.expected = expected(found.evidence.signed)
                report = await verify(reader.chains(), found.evidence, advance)
            progress.broken, progress.report = tuple(found.broken), report
        except (ConfigError, StoreUnavailableError, AuditUnavailableError) as error:
            progress.problem = str(error)
        except Exception as error:  # whatever it is, the page must not say that the trail is good, nor wait for ever
            log.exception("cannot verify the audit trail", error=str(error))
            progress.problem = "the verification failed; see the proxy's log"
        finally:
            progress.ended = time.time()
