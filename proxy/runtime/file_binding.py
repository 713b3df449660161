"""Puts together what binds a sandboxed server's files to its calls."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from proxy.sandbox.boundaries import boundaries
from proxy.stdio.bound_files import BoundFiles
from proxy.stdio.violation_keeper import ViolationKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import Context
    from proxy.gate.gate import Gate
    from proxy.runtime.sandboxed_run import SandboxedRun
    from proxy.stdio.runner import StdioRunner
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
