"""Puts together what binds a sandboxed server's files to its calls, and what tells of violations in its trace."""

from __future__ import annotations

import asyncio
import os
from functools import cache
from typing import TYPE_CHECKING

from proxy.sandbox.boundaries import boundaries
from proxy.stdio.bound_files import BoundFiles
from proxy.stdio.violation_keeper import ViolationKeeper
from proxy.trace.observed_violations import with_violations

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import Context, InFlightCall, JsonObject
    from proxy.gate.gate import Gate
    from proxy.runtime.sandboxed_run import SandboxedRun
    from proxy.sandbox.violations import Boundaries
    from proxy.stdio.runner import StdioRunner
    from proxy.trace.live_trace import Report
    from proxy.trace.tracer import TracePipe


def bind_files(
    box: SandboxedRun, gate: Gate, context: Context, runner: Callable[[], StdioRunner], trace: TracePipe | None
) -> BoundFiles:
    """Begin to supervise the server of a sandbox, some of whose tools are bound. Call it before the server starts."""
    assert box.supervised is not None
    assert box.around is not None
    profile, around = box.chosen.profile, box.around
    granted = boundaries(profile, around, os.environ, box.grants)

    def end() -> None:
        runner().kill_server()

    keeper = ViolationKeeper(gate, context, profile, end, asyncio.get_running_loop())
    folders = tuple(dict.fromkeys((around.cwd, *around.roots)))
    writer = trace.writer if trace is not None else None
    return BoundFiles(box.supervised, profile, granted, folders, around.home, keeper.take, writer)


def report_violations(box: SandboxedRun, report: Report) -> Report:
    """Return a report of what was observed that also says what of it the server's profile does not grant."""
    profile, around = box.chosen.profile, box.around
    assert around is not None

    @cache
    def granted() -> Boundaries:  # not before something was observed: the server's client waits for its start
        return boundaries(profile, around, os.environ, box.grants, bound=False)

    def judged(in_flight: InFlightCall | None, record: JsonObject) -> None:
        report(in_flight, with_violations(record, granted(), enforced=profile.enforced))

    return judged
